// Products of weights in blocks with activations of 8 bits.
#pragma once

#include <cstdint>

#include "backends/cpu/device/kernel.h"

namespace meshloom::backends::cpu {

// A row of x in 8 bits, as products read it: its parts in 32-bit words, in this order.
struct RoundedRow {
  // A word is four columns, or where the processor has no products of bytes two int16: of columns 0 and 2 of four, then 1 and 3.
  std::uint32_t* words;
  float* scales;              // by 32 columns
  float* sums;                // of the codes, times the scale; likewise
  std::int32_t* corrections;  // by group of the format: what cancels the offset of its codes

  static std::int64_t size(std::int64_t k) { return k / 2 + k / 32 + k / 32 + k / 16; }
  static RoundedRow at(std::uint32_t* base, std::int64_t k) {
    auto* floats = reinterpret_cast<float*>(base + k / 2);
    return {base, floats, floats + k / 32, reinterpret_cast<std::int32_t*>(floats + k / 16)};
  }
};

// Rows of W side by side in the vectors of a work item.
std::int64_t block_panel_rows();

// Bindings x, rounded rows. Items: rows.
void run_block_quantized_round(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
// Bindings rounded rows, w, bias or w again, y. Items: as run_panels has them.
void run_block_quantized_int8(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
