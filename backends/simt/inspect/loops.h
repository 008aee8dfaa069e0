// What the loops of a listing are made of, by the work that a family's model gave each instruction.
#pragma once

#include <vector>

#include "backends/simt/inspect/listing.h"
#include "hal/inspection.h"

namespace meshloom::backends::simt::isa {

// What a family's model covers beside the cycles of issue.
struct Modeled {
  bool waits = false;  // of loads from device memory
  bool local = false;  // cycles of the local memory
};

// One entry per loop, in the order of `loops`; a listing without loops has one entry, "(no loop)", for all of it. One is main.
std::vector<hal::LoopInspection> inspect_loops(const std::vector<Block>& blocks,
                                               const std::vector<Loop>& loops, const Modeled& modeled);

}  // namespace meshloom::backends::simt::isa
