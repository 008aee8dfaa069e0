// The work items of products with panels of weights in blocks (block_panel-inl.h), for any kernel that multiplies a panel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/device/kernel.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/cast.h"
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
  hal::DType float_type() const { return static_cast<hal::DType>(dtype); }
};

// A panel of W and the rows of x that it is multiplied by.
struct PanelProduct {
  kernels::block_quantized::FormatId format;
  std::int64_t k;
  const std::uint8_t* panel;
  std::int64_t row;           // bytes from one row of W to the next
  const std::uint8_t* ahead;  // the panel that is next, or null
  std::int64_t first, rows;   // of x
  float* scratch;             // for the kernel
  float* sums;                // (rows, panel rows), to be written
};

// What a kernel takes: rows of W in a panel, and floats of scratch.
struct PanelShape {
  std::int64_t rows, scratch;
};

// Items [begin, end) of tiles of tile_m rows x panels, the panels fastest. Bindings: any, w, bias or any, y. multiply(product) writes the
// sums; prefetch(from, bytes) asks for cache lines.
template <class Prefetch, class Multiply>
void run_panels(const KernelArgs& args, const BlockWork& work, const PanelShape& shape, std::uint32_t begin,
                std::uint32_t end, Prefetch prefetch, Multiply multiply) {
  const std::int64_t row = work.row_bytes(), n = work.n, panels = ceil_div(n, shape.rows);
  const hal::DType dtype = work.float_type();
  const auto* w = args.at<const std::uint8_t>(1);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t first = item / panels * work.tile_m, column = item % panels * shape.rows,
                       rows = std::min<std::int64_t>(work.tile_m, work.m - first),
                       width = std::min(shape.rows, n - column);
    const bool whole = width == shape.rows;
    const auto [scratch, sums, tail] = thread_scratch(
        {shape.scratch, rows * shape.rows, whole ? 0 : ceil_div(shape.rows * row, std::int64_t{4})});
    const std::uint8_t* panel = w + column * row;
    // Every panel asks for the next; the first one of a range is not asked for by any.
    if (item == begin) prefetch(panel, width * row);
    const bool follows = item + 1 < end && column + 2 * shape.rows <= n;
    const std::uint8_t* ahead = follows ? panel + shape.rows * row : nullptr;
    if (!whole) {  // rows that do not exist are zeros
      auto* copy = reinterpret_cast<std::uint8_t*>(tail);
      std::fill(std::copy_n(panel, width * row, copy), copy + shape.rows * row, std::uint8_t{0});
      panel = copy;
    }
    multiply(PanelProduct{work.block_format().id, work.k, panel, row, ahead, first, rows, scratch, sums});
    const float* bias = work.has_bias ? args.at<const float>(2) + column : nullptr;
    for (std::int64_t i = 0; i < rows; ++i) {
      float* from = sums + i * shape.rows;
      if (bias != nullptr)
        for (std::int64_t j = 0; j < width; ++j) from[j] += bias[j];
      const std::int64_t at = (first + i) * n + column;
      if (dtype == hal::DType::f32)
        std::copy_n(from, width, args.at(3) + at);
      else
        narrow(from, width, dtype,
               args.at<std::byte>(3) + at * static_cast<std::int64_t>(hal::size_of(dtype)));
    }
  }
}

}  // namespace meshloom::backends::cpu
