#include "kernels/core/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hal/error.h"

namespace meshloom::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How many times the allowed error this element is off.
double excess(double want, double got, double allowed) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kInfinity;
  if (std::isinf(want) || std::isinf(got)) return want == got ? 0 : kInfinity;
  const double error = std::abs(got - want);
  if (error == 0) return 0;
  return allowed > 0 ? error / allowed : kInfinity;
}

// `step`: what any element may be off besides.
Comparison compare_f32(const ConstTensorView& want, const ConstTensorView& got, const Tolerance& tolerance,
                       double step = 0) {
  const std::int64_t count = want.type.elements();
  const float* w = want.as<float>();
  const float* g = got.as<float>();
  double largest = std::max(1e-30, tolerance.scale);
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isfinite(w[i])) largest = std::max(largest, std::abs(static_cast<double>(w[i])));

  const auto allowed = [&](std::int64_t i) {
    return step + tolerance.abs * largest + tolerance.rel * std::abs(static_cast<double>(w[i]));
  };
  Comparison result;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double off = excess(w[i], g[i], allowed(i));
    if (off > 1) ++result.wrong;
    if (off > result.worst) {
      result.worst = off;
      at = i;
    }
  }
  result.ok = result.wrong == 0;
  if (!result.ok)
    result.text = fmt::format(
        "{} of {} elements of {} are wrong; worst is element {}: got {}, want {}, allowed error {:.3g}",
        result.wrong, count, to_string(want.type), at, g[at], w[at], allowed(at));
  return result;
}

Comparison compare_bits(const ConstTensorView& want, const ConstTensorView& got) {
  const std::size_t size = hal::size_of(want.type.dtype);
  Comparison result;
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < want.type.elements(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(want.data + at, got.data + at, size) == 0) continue;
    ++result.wrong;
    if (first < 0) first = i;
  }
  result.ok = result.wrong == 0;
  if (!result.ok) {
    result.worst = kInfinity;
    result.text = fmt::format("{} of {} elements of {} are not equal; the first is element {}", result.wrong,
                              want.type.elements(), to_string(want.type), first);
  }
  return result;
}

}  // namespace

Comparison compare(const ConstTensorView& want, const ConstTensorView& got, const Tolerance& tolerance) {
  if (want.type != got.type)
    throw hal::Error("compare", "both tensors must have one type " + to_string(want.type),
                     to_string(got.type));
  if (want.type.dtype == DType::f32) return compare_f32(want, got, tolerance);
  if (hal::is_low_precision(want.type.dtype)) {
    // Numbers that differ by no more than the tolerance may be rounded to neighbours.
    Tolerance rounded = tolerance;
    double step = 0;
    if (tolerance.rel > 0 || tolerance.abs > 0) {
      rounded.rel += hal::epsilon(want.type.dtype);
      if (want.type.dtype == DType::f16) step = 0x1p-24;  // of subnormal numbers
    }
    const HostTensor w = widened(want), g = widened(got);
    return compare_f32({w.type, w.data.data()}, {g.type, g.data.data()}, rounded, step);
  }
  return compare_bits(want, got);
}

Comparison compare_output(const Contract& contract, const CallView& call,
                          std::span<const ConstTensorView> inputs, std::span<const ConstTensorView> want,
                          std::span<const ConstTensorView> got, int output) {
  if (contract.judge) return contract.judge(call, inputs, want, got, output);
  const auto at = static_cast<std::size_t>(output);
  return compare(want[at], got[at], contract.tolerance(call));
}

Comparison compare_output(const Contract& contract, const CallView& call,
                          const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& want,
                          const std::vector<HostTensor>& got, int output) {
  const auto views = [](const std::vector<HostTensor>& tensors) {
    std::vector<ConstTensorView> list;
    for (const HostTensor& tensor : tensors) list.push_back({tensor.type, tensor.data.data()});
    return list;
  };
  return compare_output(contract, call, views(inputs), views(want), views(got), output);
}

}  // namespace meshloom::kernels
