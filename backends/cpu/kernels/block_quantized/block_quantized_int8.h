// Products of weights in blocks with activations of 8 bits.
#pragma once

#include <cstdint>

#include "backends/cpu/device/kernel.h"
#include "kernels/block_quantized/formats.h"

namespace meshloom::backends::cpu {

// What every kernel of such products is told.
struct BlockWork {
  std::int32_t m, n, k;
  std::int32_t tile_m;  // rows of x of a work item
  std::int32_t has_bias;
  std::uint32_t format;  // its FormatId
  std::uint32_t dtype;   // of x and y

  const kernels::block_quantized::Format& block_format() const {
    return kernels::block_quantized::format_of(static_cast<kernels::block_quantized::FormatId>(format));
  }
  std::int64_t row_bytes() const { return kernels::block_quantized::row_bytes(block_format(), k); }
};

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
// Bindings rounded rows, w, bias or w again, y. Items: tiles of tile_m rows x panels of W, the panels fastest.
void run_block_quantized_int8(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
