// RMSNorm and its gradient, one row at a time in the L1 cache. The weight's gradient is summed over
// fixed blocks of rows, then over the blocks.
#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/partial_sums.h"
#include "backends/cpu/kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/rms_norm.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Returns 1 / sqrt(mean(x^2) + eps).
float RmsNormRow(const float* x, const float* w, float* y, std::int64_t n, float eps) {
  const float sum = SumOver(n, [x](auto d, std::int64_t i) {
    const auto v = hn::LoadU(d, x + i);
    return hn::Mul(v, v);
  });
  const float rstd = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  Over(n, [=](auto d, std::int64_t i) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd)), hn::LoadU(d, w + i)), d, y + i);
  });
  return rstd;
}

// Writes dx, which may be dy or the residual, and adds the row's part to dw.
template <bool kResidual>
HWY_INLINE void GradRow(const float* x, const float* w, float rstd, const float* dy, const float* residual,
                        float* dx, float* dw, std::int64_t n) {
  const float dot = SumOver(n, [=](auto d, std::int64_t i) {
    const auto xdy = hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, dy + i));
    hn::StoreU(hn::MulAdd(xdy, hn::Set(d, rstd), hn::LoadU(d, dw + i)), d, dw + i);
    return hn::Mul(xdy, hn::LoadU(d, w + i));
  });
  const float pull = dot * rstd * rstd / static_cast<float>(n);
  Over(n, [=](auto d, std::int64_t i) {
    const auto g = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, w + i));
    const auto v = hn::NegMulAdd(hn::LoadU(d, x + i), hn::Set(d, pull), g);
    if constexpr (kResidual)
      hn::StoreU(hn::MulAdd(v, hn::Set(d, rstd), hn::LoadU(d, residual + i)), d, dx + i);
    else
      hn::StoreU(hn::Mul(v, hn::Set(d, rstd)), d, dx + i);
  });
}

void RmsNormGradRow(const float* x, const float* w, float rstd, const float* dy, float* dx, float* dw,
                    std::int64_t n) {
  GradRow<false>(x, w, rstd, dy, nullptr, dx, dw, n);
}
void RmsNormGradAddRow(const float* x, const float* w, float rstd, const float* dy, const float* residual,
                       float* dx, float* dw, std::int64_t n) {
  GradRow<true>(x, w, rstd, dy, residual, dx, dw, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(RmsNormGradRow);
HWY_EXPORT(RmsNormGradAddRow);

namespace {

// Bindings x, w, y, rstd; an item is a row.
void run_rms_norm(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const float eps = constants.number();
  const hal::DType dtype = constants.dtype();
  const auto row_function = HWY_DYNAMIC_DISPATCH(RmsNormRow);
  RowsIn x(args, 0, dtype);
  RowsOut y(args, 2, dtype);
  for (std::int64_t row = begin; row < end; ++row) {
    args.at(3)[row] = row_function(x.row(row * n, n), args.at(1), y.row(row * n, n), n, eps);
    y.done();
  }
}

// Bindings x, w, rstd, dy, dx, partial dw (blocks, n), then the residual if there is one; an item is a block of rows.
void run_rms_norm_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), rows = constants.integer(), size = constants.integer();
  const hal::DType dtype = constants.dtype();
  const auto row_function = HWY_DYNAMIC_DISPATCH(RmsNormGradRow);
  const auto add_function = HWY_DYNAMIC_DISPATCH(RmsNormGradAddRow);
  const bool residual = constants.integer() != 0;
  RowsIn x(args, 0, dtype), dy(args, 3, dtype), more(args, residual ? 6 : 3, dtype);
  RowsOut dx(args, 4, dtype);
  for (std::int64_t block = begin; block < end; ++block) {
    float* dw = args.at(5) + block * n;
    std::fill_n(dw, n, 0.0f);
    for (std::int64_t row = block * size; row < std::min(rows, (block + 1) * size); ++row) {
      const float *of = x.row(row * n, n), *by = dy.row(row * n, n);
      float* to = dx.row(row * n, n);
      if (residual)
        add_function(of, args.at(1), args.at(2)[row], by, more.row(row * n, n), to, dw, n);
      else
        row_function(of, args.at(1), args.at(2)[row], by, to, dw, n);
      dx.done();
    }
  }
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1);
  record(args, "rms_norm", args.call.inputs[0].elements() / n,
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0]), writes(args.outputs[1])},
         Constants().integer(n).real(args.call.attrs.number("eps")).dtype(args.call.inputs[0].dtype));
}

RowBlocks blocks_of(const kernels::CallView& call) {
  return row_blocks(call.inputs[0].elements() / call.inputs[0].dim(-1));
}

kernels::Fit fit_grad(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call, true);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  return kernels::Fit::yes({}, blocks_of(call).count * call.inputs[0].dim(-1) * 4);
}

void encode_grad(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1);
  const RowBlocks blocks = blocks_of(args.call);
  const bool residual = args.call.attrs.flag("residual");
  std::vector<hal::Binding> bindings{reads(args.inputs[0]), reads(args.inputs[1]),   reads(args.inputs[2]),
                                     reads(args.inputs[3]), writes(args.outputs[0]), writes(args.workspace)};
  if (residual) bindings.push_back(reads(args.inputs[4]));
  const Constants constants = Constants()
                                  .integer(n)
                                  .integer(blocks.rows)
                                  .integer(blocks.size)
                                  .dtype(args.call.inputs[0].dtype)
                                  .integer(residual ? 1 : 0);
  record_dispatch(args, "rms_norm_grad", grid(blocks.count, 1, 1), bindings, constants.words());
  args.commands.barrier();
  record_partial_sums(args, args.workspace, args.outputs[1], blocks.count, n);
}

}  // namespace

Ops rms_norm_ops() {
  return {{{"rms_norm", run_rms_norm}, {"rms_norm_grad", run_rms_norm_grad}},
          {{"rms_norm", {low_precision_variant("one row at a time in vectors", fit_floats, encode)}},
           {"rms_norm_grad",
            {low_precision_variant("reads x and dy once; gradient of the weight summed by blocks of rows",
                                   fit_grad, encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
