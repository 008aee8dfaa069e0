// LayerNorm and its gradient, one row at a time in the L1 cache. The gradients of weight and bias
// are summed over fixed blocks of rows, then over the blocks.
#include <algorithm>
#include <cmath>

#include "backends/cpu/device/memory.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/partial_sums.h"
#include "backends/cpu/kernels/rows.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/layer_norm.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// The variance is computed in a second pass over the row, to avoid cancellation.
void LayerNormRow(const float* x, const float* w, const float* b, float* y, std::int64_t n, float eps,
                  float* mean_out, float* rstd_out) {
  const float mean =
      SumOver(n, [x](auto d, std::int64_t i) { return hn::LoadU(d, x + i); }) / static_cast<float>(n);
  const float sum = SumOver(n, [=](auto d, std::int64_t i) {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    return hn::Mul(v, v);
  });
  const float rstd = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  Over(n, [=](auto d, std::int64_t i) {
    const auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
    hn::StoreU(hn::MulAdd(v, hn::LoadU(d, w + i), hn::LoadU(d, b + i)), d, y + i);
  });
  *mean_out = mean;
  *rstd_out = rstd;
}

// Writes dx, which may be dy or the residual, and adds the row's part to dw and db.
template <bool kResidual>
HWY_INLINE void CentredGradRow(const float* x, const float* w, float mean, float rstd, const float* dy,
                               const float* residual, float* dx, float* dw, float* db, std::int64_t n) {
  const float sum =
      SumOver(n, [=](auto d, std::int64_t i) { return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, w + i)); });
  const float dot = SumOver(n, [=](auto d, std::int64_t i) {
    const auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto g = hn::LoadU(d, dy + i);
    const auto vg = hn::Mul(v, g);
    hn::StoreU(hn::Add(hn::LoadU(d, dw + i), vg), d, dw + i);
    hn::StoreU(hn::Add(hn::LoadU(d, db + i), g), d, db + i);
    return hn::Mul(vg, hn::LoadU(d, w + i));
  });
  const float mean_g = sum / static_cast<float>(n), pull = dot / static_cast<float>(n);
  Over(n, [=](auto d, std::int64_t i) {
    const auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto g = hn::MulSub(hn::LoadU(d, dy + i), hn::LoadU(d, w + i), hn::Set(d, mean_g));
    const auto pulled = hn::NegMulAdd(v, hn::Set(d, pull), g);
    if constexpr (kResidual)
      hn::StoreU(hn::MulAdd(pulled, hn::Set(d, rstd), hn::LoadU(d, residual + i)), d, dx + i);
    else
      hn::StoreU(hn::Mul(pulled, hn::Set(d, rstd)), d, dx + i);
  });
}

void LayerNormGradRow(const float* x, const float* w, float mean, float rstd, const float* dy, float* dx,
                      float* dw, float* db, std::int64_t n) {
  CentredGradRow<false>(x, w, mean, rstd, dy, nullptr, dx, dw, db, n);
}
void LayerNormGradAddRow(const float* x, const float* w, float mean, float rstd, const float* dy,
                         const float* residual, float* dx, float* dw, float* db, std::int64_t n) {
  CentredGradRow<true>(x, w, mean, rstd, dy, residual, dx, dw, db, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(LayerNormRow);
HWY_EXPORT(LayerNormGradRow);
HWY_EXPORT(LayerNormGradAddRow);

namespace {

// Bindings x, w, b, y, mean, rstd; an item is a row.
void run_layer_norm(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const float eps = constants.number();
  const hal::DType dtype = constants.dtype();
  const auto row_function = HWY_DYNAMIC_DISPATCH(LayerNormRow);
  RowsIn x(args, 0, dtype);
  RowsOut y(args, 3, dtype);
  for (std::int64_t row = begin; row < end; ++row) {
    row_function(x.row(row * n, n), args.at(1), args.at(2), y.row(row * n, n), n, eps, args.at(4) + row,
                 args.at(5) + row);
    y.done();
  }
}

// Bindings x, w, mean, rstd, dy, dx, partial dw and partial db (blocks, n each), then the residual if there is one; an item is a
// block of rows.
void run_layer_norm_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), rows = constants.integer(), size = constants.integer();
  const hal::DType dtype = constants.dtype();
  const auto row_function = HWY_DYNAMIC_DISPATCH(LayerNormGradRow);
  const auto add_function = HWY_DYNAMIC_DISPATCH(LayerNormGradAddRow);
  const bool residual = constants.integer() != 0;
  RowsIn x(args, 0, dtype), dy(args, 4, dtype), more(args, residual ? 8 : 4, dtype);
  RowsOut dx(args, 5, dtype);
  for (std::int64_t block = begin; block < end; ++block) {
    float *dw = args.at(6) + block * n, *db = args.at(7) + block * n;
    std::fill_n(dw, n, 0.0f);
    std::fill_n(db, n, 0.0f);
    for (std::int64_t row = block * size; row < std::min(rows, (block + 1) * size); ++row) {
      const float *of = x.row(row * n, n), *by = dy.row(row * n, n);
      float* to = dx.row(row * n, n);
      if (residual)
        add_function(of, args.at(1), args.at(2)[row], args.at(3)[row], by, more.row(row * n, n), to, dw, db,
                     n);
      else
        row_function(of, args.at(1), args.at(2)[row], args.at(3)[row], by, to, dw, db, n);
      dx.done();
    }
  }
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1);
  record(args, "layer_norm", args.call.inputs[0].elements() / n,
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), writes(args.outputs[0]),
          writes(args.outputs[1]), writes(args.outputs[2])},
         Constants().integer(n).real(args.call.attrs.number("eps")).dtype(args.call.inputs[0].dtype));
}

RowBlocks blocks_of(const kernels::CallView& call) {
  return row_blocks(call.inputs[0].elements() / call.inputs[0].dim(-1));
}
std::int64_t partial_bytes(const kernels::CallView& call) {
  return hal::round_up(blocks_of(call).count * call.inputs[0].dim(-1) * 4, kAlignment);
}

kernels::Fit fit_grad(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call, true);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  return kernels::Fit::yes({}, 2 * partial_bytes(call));
}

void encode_grad(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1), bytes = partial_bytes(args.call);
  const RowBlocks blocks = blocks_of(args.call);
  const hal::Binding dw = slice(args.workspace, 0, bytes), db = slice(args.workspace, bytes, bytes);
  const bool residual = args.call.attrs.flag("residual");
  std::vector<hal::Binding> bindings{reads(args.inputs[0]),
                                     reads(args.inputs[1]),
                                     reads(args.inputs[2]),
                                     reads(args.inputs[3]),
                                     reads(args.inputs[4]),
                                     writes(args.outputs[0]),
                                     writes(dw),
                                     writes(db)};
  if (residual) bindings.push_back(reads(args.inputs[5]));
  const Constants constants = Constants()
                                  .integer(n)
                                  .integer(blocks.rows)
                                  .integer(blocks.size)
                                  .dtype(args.call.inputs[0].dtype)
                                  .integer(residual ? 1 : 0);
  record_dispatch(args, "layer_norm_grad", grid(blocks.count, 1, 1), bindings, constants.words());
  args.commands.barrier();
  record_partial_sums(args, dw, args.outputs[1], blocks.count, n);
  record_partial_sums(args, db, args.outputs[2], blocks.count, n);
}

}  // namespace

Ops layer_norm_ops() {
  return {{{"layer_norm", run_layer_norm}, {"layer_norm_grad", run_layer_norm_grad}},
          {{"layer_norm", {low_precision_variant("one row at a time in vectors", fit_floats, encode)}},
           {"layer_norm_grad",
            {low_precision_variant("one row at a time; gradients of weight and bias summed by blocks of rows",
                                   fit_grad, encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
