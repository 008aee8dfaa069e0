// Assembly of Intel's Xe GPUs as the graphics compiler (IGC) dumps it, and what it keeps a vector engine busy with.
// Counted: a cycle of issue for every instruction and for each native width of its execution size beyond the first; cycles of the
// matrix unit, beside which others issue; widths of loads; waits. Not counted: latencies, bank conflicts, caches, that integers and floats of two threads issue at the same time,
// and that transcendental functions take longer. docs/inspecting-kernels.md has the numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/simt/inspect/listing.h"
#include "hal/inspection.h"

namespace meshloom::backends::opencl::xe {

struct Listing {
  std::optional<std::int64_t>
      spill_size;  // bytes of a hardware thread's registers in memory, where it says so
  std::vector<simt::isa::Block> blocks;
};

// `native` is the number of f32 lanes of a vector engine. Lines are "LABEL:" or "(PREDICATE) NAME (LANES|MASK) OPERAND ...
// {SCOREBOARD} // COMMENT"; properties stand in "//.NAME VALUE". Throws Error on a listing without instructions, and on one of
// other instructions.
Listing parse_listing(std::string_view text, int native);

std::vector<hal::LoopInspection> inspect_loops(const Listing& listing);

}  // namespace meshloom::backends::opencl::xe
