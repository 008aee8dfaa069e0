// Products whose matrix is chosen for each row. An output's sum has an order that depends on K and the vector width alone, so that
// a row has the same bits whatever rows are beside it.
#include "kernels/gather_matmul/gather_matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul/gather_matmul.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// out[j] = sum over k of x[k] w[j * k + ..] for ROWS rows of w. Rows that share a pass over x share no sum.
template <class Of, int ROWS>
HWY_INLINE void GatherDots(std::int64_t k, const float* x, const typename Of::T* w, float* out) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[ROWS];
#pragma GCC unroll 8
  for (int j = 0; j < ROWS; ++j) sums[j] = hn::Zero(d);
  std::int64_t at = 0;
  for (; at + lanes <= k; at += lanes) {
    const V left = hn::LoadU(d, x + at);
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) sums[j] = hn::MulAdd(left, Of::load(d, w + j * k + at), sums[j]);
  }
  if (at < k) {
    // The remainder goes through vectors too: scalars may be multiplied and added with one rounding or two.
    HWY_ALIGN float left[16] = {}, right[16] = {};
    for (std::int64_t i = at; i < k; ++i) left[i - at] = x[i];
    for (int j = 0; j < ROWS; ++j) {
      for (std::int64_t i = at; i < k; ++i) right[i - at] = Of::load_one(w[j * k + i]);
      sums[j] = hn::MulAdd(hn::Load(d, left), hn::Load(d, right), sums[j]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < ROWS; ++j) out[j] = hn::GetLane(hn::SumOfLanes(d, sums[j]));
}

template <class Of>
void GatherRow(std::int64_t n, std::int64_t k, const float* x, const typename Of::T* w, float* out) {
  std::int64_t j = 0;
  for (; j + 8 <= n; j += 8) GatherDots<Of, 8>(k, x, w + j * k, out + j);
  for (; j < n; ++j) GatherDots<Of, 1>(k, x, w + j * k, out + j);
}

// out[j] = sum over k of x[k] w[k * stride + j], in the order of k. `out` has room for whole vectors.
template <class Of>
void GatherColumns(std::int64_t n, std::int64_t k, const float* x, const typename Of::T* w,
                   std::int64_t stride, float* out) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  const auto columns = [&]<int COUNT>() HWY_ATTR {
    for (; j + COUNT * lanes <= n; j += COUNT * lanes) {
      V sums[COUNT];
#pragma GCC unroll 4
      for (int c = 0; c < COUNT; ++c) sums[c] = hn::Zero(d);
      for (std::int64_t at = 0; at < k; ++at) {
        const V left = hn::Set(d, x[at]);
#pragma GCC unroll 4
        for (int c = 0; c < COUNT; ++c)
          sums[c] = hn::MulAdd(left, Of::load(d, w + at * stride + j + c * lanes), sums[c]);
      }
#pragma GCC unroll 4
      for (int c = 0; c < COUNT; ++c) hn::StoreU(sums[c], d, out + j + c * lanes);
    }
  };
  columns.template operator()<4>();
  columns.template operator()<1>();
  if (j == n) return;
  V sum = hn::Zero(d);
  HWY_ALIGN float right[16] = {};
  for (std::int64_t at = 0; at < k; ++at) {
    for (std::int64_t i = j; i < n; ++i) right[i - j] = Of::load_one(w[at * stride + i]);
    sum = hn::MulAdd(hn::Set(d, x[at]), hn::Load(d, right), sum);
  }
  hn::StoreU(sum, d, out + j);
}

// n outputs of one row; `stride` is that of w (k, n), 0 = w is (n, k).
void GatherProduct(std::int64_t n, std::int64_t k, const float* x, const void* w, hal::DType dtype,
                   std::int64_t stride, float* out) {
  const auto run = [&]<hal::DType DTYPE>() {
    const auto* of = static_cast<const typename Stored<DTYPE>::T*>(w);
    if (stride > 0)
      GatherColumns<Stored<DTYPE>>(n, k, x, of, stride, out);
    else
      GatherRow<Stored<DTYPE>>(n, k, x, of, out);
  };
  if (dtype == hal::DType::bf16) return run.template operator()<hal::DType::bf16>();
  if (dtype == hal::DType::f16) return run.template operator()<hal::DType::f16>();
  run.template operator()<hal::DType::f32>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(GatherProduct);

namespace {

constexpr std::int64_t kBlock = 256;  // outputs of an item

// Bindings x, w, indices, residual (or x again), y; an item is kBlock outputs of a row.
void run(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), k = constants.integer(), s = constants.integer();
  const bool has_residual = constants.integer() != 0, trans_b = constants.integer() != 0;
  const hal::DType dtype = constants.dtype(), w_dtype = constants.dtype();
  const auto size = static_cast<std::int64_t>(hal::size_of(dtype)),
             w_size = static_cast<std::int64_t>(hal::size_of(w_dtype));
  const std::int64_t blocks = hal::ceil_div(n, kBlock);
  const auto* indices = args.at<const std::int32_t>(2);
  std::vector<float> wide(static_cast<std::size_t>(dtype == hal::DType::f32 ? 0 : k));
  std::int64_t widened = -1;  // the row that `wide` holds
  float sums[kBlock + 16], before[kBlock];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / blocks, first = item % blocks * kBlock,
                       count = std::min(kBlock, n - first), index = indices[row];
    std::byte* y = args.at<std::byte>(4) + (row * n + first) * size;
    const std::byte* residual =
        has_residual ? args.at<const std::byte>(3) + (row * n + first) * size : nullptr;
    const auto bytes = static_cast<std::size_t>(count * size);
    if (index < 0 || index >= s) {
      if (!residual)
        std::memset(y, 0, bytes);
      else if (residual != y)
        std::memcpy(y, residual, bytes);
      continue;
    }
    const float* x = args.at<const float>(0) + row * k;
    if (dtype != hal::DType::f32) {
      if (widened != row) widen(args.at<const std::byte>(0) + row * k * size, dtype, k, wide.data());
      widened = row;
      x = wide.data();
    }
    HWY_DYNAMIC_DISPATCH(GatherProduct)
    (count, k, x, args.at<const std::byte>(1) + (index * n * k + first * (trans_b ? k : 1)) * w_size, w_dtype,
     trans_b ? 0 : n, sums);
    if (residual) {
      widen(residual, dtype, count, before);
      for (std::int64_t j = 0; j < count; ++j) sums[j] += before[j];
    }
    narrow(sums, count, dtype, y);
  }
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::GatherMatmulDims d = kernels::gather_matmul_dims(args.call);
  record(args, "gather_matmul", d.m * hal::ceil_div(d.n, kBlock),
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
          reads(args.inputs[d.residual ? 3 : 0]), writes(args.outputs[0])},
         Constants()
             .integer(d.n)
             .integer(d.k)
             .integer(d.s)
             .integer(d.residual ? 1 : 0)
             .integer(d.trans_b ? 1 : 0)
             .dtype(args.call.inputs[0].dtype)
             .dtype(args.call.inputs[1].dtype));
}

}  // namespace

Ops gather_matmul_ops() {
  return {{{"gather_matmul", run}},
          {{"gather_matmul",
            {low_precision_variant("blocks of a row's outputs in parallel, dot products in vectors",
                                   fit_floats, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
