// The work items of products with panels of weights in blocks (block_panel-inl.h), for any kernel that multiplies a panel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/device/kernel.h"
#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "kernels/block_quantized/formats.h"

namespace meshloom::backends::cpu {

// What every kernel of such products is told.
struct BlockWork {
  std::int32_t m, n, k;
  std::int32_t tile_m, panels;  // of a work item: rows of x, and panels of W
  std::int32_t has_bias, has_residual;
  std::uint32_t format;  // its FormatId
  std::uint32_t dtype;   // of x, y and the residual

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

// Where a panel stands among the products of a range of work items.
struct PanelPlace {
  const std::uint8_t* w;
  std::int64_t row, tile, panel;  // bytes of a row; the tile of rows of x, and the panel of W
  bool is_first, has_next;
};

// One product, with its epilogue, as y stores it.
template <class Prefetch, class Multiply>
void run_panel(const KernelArgs& args, const BlockWork& work, const PanelShape& shape, const PanelPlace& at,
               Prefetch prefetch, Multiply multiply) {
  const std::int64_t n = work.n, row = at.row, first = at.tile * work.tile_m, column = at.panel * shape.rows,
                     rows = std::min<std::int64_t>(work.tile_m, work.m - first),
                     width = std::min(shape.rows, n - column);
  const bool whole = width == shape.rows;
  const auto [scratch, sums, tail] = thread_scratch(
      {shape.scratch, rows * shape.rows, whole ? 0 : ceil_div(shape.rows * row, std::int64_t{4})});
  const std::uint8_t* panel = at.w + column * row;
  // Every panel asks for the next; nobody has asked for the first one.
  if (at.is_first) prefetch(panel, width * row);
  const bool next_is_whole = at.has_next && column + 2 * shape.rows <= n;
  const std::uint8_t* ahead = next_is_whole ? panel + shape.rows * row : nullptr;
  if (!whole) {  // rows that do not exist are zeros
    auto* copy = reinterpret_cast<std::uint8_t*>(tail);
    std::fill(std::copy_n(panel, width * row, copy), copy + shape.rows * row, std::uint8_t{0});
    panel = copy;
  }
  multiply(PanelProduct{work.block_format().id, work.k, panel, row, ahead, first, rows, scratch, sums});
  const std::int64_t to = (first * n + column) * static_cast<std::int64_t>(hal::size_of(work.float_type()));
  apply_epilogue({.bias = work.has_bias ? args.at<const float>(2) + column : nullptr,
                  .residual = work.has_residual ? args.at<const std::byte>(3) + to : nullptr,
                  .dtype = work.float_type()},
                 rows, width, sums, shape.rows, args.at<std::byte>(4) + to, n);
}

// Items [begin, end) of tiles of tile_m rows x runs of panels, the runs fastest. Bindings: any, w, bias or any, residual or any, y.
// multiply(product) writes the sums; prefetch(from, bytes) asks for cache lines.
template <class Prefetch, class Multiply>
void run_panels(const KernelArgs& args, const BlockWork& work, const PanelShape& shape, std::uint32_t begin,
                std::uint32_t end, Prefetch prefetch, Multiply multiply) {
  const std::int64_t row = work.row_bytes(), n = work.n, panels = ceil_div(n, shape.rows),
                     runs = ceil_div(panels, std::int64_t{work.panels});
  const auto* w = args.at<const std::uint8_t>(1);
  // Products of all of the range, in order: of tiles, those of whole runs of panels.
  const std::int64_t first_tile = begin / runs, last_tile = (end - 1) / runs;
  for (std::int64_t tile = first_tile; tile <= last_tile; ++tile) {
    const std::int64_t from_run = tile == first_tile ? begin % runs : 0,
                       to_run = tile == last_tile ? (end - 1) % runs + 1 : runs,
                       from_panel = from_run * work.panels, to_panel = std::min(panels, to_run * work.panels);
    for (std::int64_t at = from_panel; at < to_panel; ++at)
      run_panel(args, work, shape, {w, row, tile, at, at == from_panel, at + 1 < to_panel}, prefetch,
                multiply);
  }
}

}  // namespace meshloom::backends::cpu
