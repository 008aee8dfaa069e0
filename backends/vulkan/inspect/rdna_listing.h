// Assembly of AMD's RDNA GPUs as Mesa prints it.
#pragma once

#include <string_view>
#include <vector>

#include "backends/simt/inspect/listing.h"

namespace meshloom::backends::vulkan::rdna {

using simt::isa::Block;
using simt::isa::Instruction;
using simt::isa::Unit;

// Lines are "LABEL:" or an indented "NAME OPERAND, ... ; COMMENT"; a dual-issue pair has "::" between its two. Branches
// without a known target end their block. Throws Error on a listing without instructions, and on one of other instructions.
std::vector<Block> parse_listing(std::string_view text);

// Scalars that count to a constant, and a lane's counter that begins below its step.
simt::isa::Induction induction_of(const Instruction& one);

}  // namespace meshloom::backends::vulkan::rdna
