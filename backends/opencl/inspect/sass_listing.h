// Assembly of NVIDIA's GPUs as nvdisasm prints it with its encoding, and what it keeps a quarter of a multiprocessor busy with.
// Counted: a slot of issue for every instruction; beside them, the cycles of the tensor cores and of the local memory; widths of
// loads; waits, by the scoreboards that the encoding holds. Not counted: latencies, stalls, bank conflicts, caches, and that integers and
// transcendental functions have half and an eighth of the rate. docs/inspecting-kernels.md has the numbers.
#pragma once

#include <string_view>
#include <vector>

#include "backends/simt/inspect/listing.h"
#include "hal/inspection.h"

namespace meshloom::backends::opencl::sass {

// `flops_per_cycle` is what the tensor cores of a quarter do of 16-bit products with sums in f32, `int8_per_cycle` of bytes. Lines are "LABEL:" or
// "/*ADDRESS*/ @PREDICATE NAME OPERAND, ... ; /* ENCODING */", with the upper half of the encoding on the next line. Throws
// Error on a listing without instructions, and on one of other instructions.
std::vector<simt::isa::Block> parse_listing(std::string_view text, double flops_per_cycle,
                                            double int8_per_cycle);

std::vector<hal::LoopInspection> inspect_loops(const std::vector<simt::isa::Block>& blocks);

}  // namespace meshloom::backends::opencl::sass
