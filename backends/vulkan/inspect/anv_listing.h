// Assembly of Intel's Xe GPUs as Mesa's ANV prints it, and what it keeps a vector engine busy with.
// Counted: a cycle of issue for every instruction and for each native width of its execution size beyond the first; products of
// matrices, beside which others issue; widths of loads; waits. Not counted: latencies, bank conflicts, caches, that integers and
// floats of two threads issue at the same time, and that transcendental functions take longer. The same as of OpenCL's compiler
// (backends/opencl/inspect/xe_listing.h), whose text is another.
#pragma once

#include <string_view>
#include <vector>

#include "backends/simt/inspect/listing.h"
#include "backends/simt/inspect/xe_model.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan::anv {

// By ANV's name of a device, "Intel(R) Arc(tm) A770 Graphics (DG2)"; nullptr = not one of those that are read.
const simt::isa::Xe* family_of(std::string_view device_name);

// `native` is the number of f32 lanes of a vector engine. Lines are "LABEL:" or "(PREDICATE) NAME(LANES) OPERAND ... { FLAGS
// SCOREBOARDS };", those of messages with a line "UNIT MsgDesc: ( WHAT ) ... { ... };" behind. Throws Error on a listing without
// instructions, and on one of other instructions.
std::vector<simt::isa::Block> parse_listing(std::string_view text, int native);

std::vector<hal::LoopInspection> inspect_loops(std::string_view listing, const simt::isa::Xe& xe);

}  // namespace meshloom::backends::vulkan::anv
