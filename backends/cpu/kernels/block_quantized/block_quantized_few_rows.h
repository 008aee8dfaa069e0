// Products of few rows of floats with weights in blocks.
#pragma once

#include <cstdint>

#include "backends/cpu/device/kernel.h"

namespace meshloom::backends::cpu {

// Rows of W side by side in the vectors of a work item.
std::int64_t few_rows_panel_rows();

// Bindings x, w, bias or w again, y. Items: as run_panels has them.
void run_block_quantized_few_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
