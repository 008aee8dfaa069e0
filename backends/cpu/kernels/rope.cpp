// Rotary position embedding: a table of cosines and sines by position, or by row where rows have positions of their own, computed
// once per call, then applied to every head of every row.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/rope/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/rope.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "backends/cpu/simd/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Cosine and sine of reduced + quadrant * pi / 2, with `reduced` in [-pi/4, pi/4] and `quadrant` 0, 1, 2 or 3.
void SinCosOf(const float* reduced, const std::int32_t* quadrant, float* cosine, float* sine,
              std::int64_t n) {
  Over(n, [=](auto d, std::int64_t i) {
    using T = decltype(d);
    const hn::RebindToSigned<T> di;
    hn::Vec<T> s, c;
    math::SinCos(d, hn::LoadU(d, reduced + i), s, c);
    const auto q = hn::LoadU(di, quadrant + i);
    const auto one = hn::Set(di, 1), two = hn::Set(di, 2);
    const auto odd = hn::RebindMask(d, hn::Eq(hn::And(q, one), one));
    const auto flip_sine = hn::RebindMask(d, hn::Eq(hn::And(q, two), two));
    const auto flip_cosine = hn::RebindMask(d, hn::Eq(hn::And(hn::Add(q, one), two), two));
    const auto swapped_s = hn::IfThenElse(odd, c, s), swapped_c = hn::IfThenElse(odd, s, c);
    hn::StoreU(hn::IfThenElse(flip_sine, hn::Neg(swapped_s), swapped_s), d, sine + i);
    hn::StoreU(hn::IfThenElse(flip_cosine, hn::Neg(swapped_c), swapped_c), d, cosine + i);
  });
}

void RotateHalf(const float* x, float* y, const float* cosine, const float* sine, std::int64_t frequencies) {
  Over(frequencies, [=](auto d, std::int64_t i) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + frequencies + i);
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + frequencies + i);
  });
}

void RotateInterleaved(const float* x, float* y, const float* cosine, const float* sine,
                       std::int64_t frequencies) {
  const Wide d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= frequencies; i += step) {
    hn::Vec<Wide> a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    hn::StoreInterleaved2(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), d, y + 2 * i);
  }
  for (; i < frequencies; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cosine[i] - b * sine[i];
    y[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(SinCosOf);
HWY_EXPORT(RotateHalf);
HWY_EXPORT(RotateInterleaved);

namespace {

// Bindings: table (S, 2, frequencies), cosines then sines, where an item is a position; or table (B S, 2, frequencies) and
// positions, where an item is a row. Angles are reduced in
// double, since they grow to the sequence length, where f32 has few bits left for the fraction.
void run_table(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t frequencies = constants.integer(), offset = constants.integer();
  const double theta = constants.real(), direction = constants.real(), slow = constants.real(),
               by_frequency = constants.real(), by_pair = constants.real(), shift = constants.real();
  const auto magnitude = static_cast<float>(constants.real());
  const auto* positions = constants.integer() != 0 ? args.at<const std::int32_t>(1) : nullptr;
  const bool factors = constants.integer() != 0;
  const auto count = static_cast<std::size_t>(frequencies);
  std::vector<double> frequency(count);
  for (std::size_t p = 0; p < count; ++p) {
    const double plain = std::pow(theta, -static_cast<double>(p) / static_cast<double>(frequencies));
    const double kept = std::clamp(by_frequency * plain + by_pair * static_cast<double>(p) + shift, 0.0, 1.0);
    frequency[p] = direction * plain * (factors ? 1 / constants.real() : slow + (1 - slow) * kept);
  }
  std::vector<float> reduced(count);
  std::vector<std::int32_t> quadrant(count);
  const auto sin_cos = HWY_DYNAMIC_DISPATCH(SinCosOf);
  for (std::int64_t s = begin; s < end; ++s) {
    const auto position = static_cast<double>((positions ? positions[s] : s) + offset);
    for (std::size_t p = 0; p < count; ++p) {
      const double angle = position * frequency[p];
      const double quarters = std::nearbyint(angle * (2 / std::numbers::pi));
      reduced[p] = static_cast<float>(angle - quarters * (std::numbers::pi / 2));
      quadrant[p] = static_cast<std::int32_t>(static_cast<std::int64_t>(quarters) & 3);
    }
    float* row = args.at(0) + s * 2 * frequencies;
    sin_cos(reduced.data(), quadrant.data(), row, row + frequencies, frequencies);
    if (magnitude != 1)
      for (std::int64_t i = 0; i < 2 * frequencies; ++i) row[i] *= magnitude;
  }
}

// Bindings x, table, y; an item is a row of heads (b, s).
void run_rotate(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t angles = constants.integer(), heads = constants.integer(), d = constants.integer(),
                     frequencies = constants.integer();
  const auto rotate =
      constants.integer() != 0 ? HWY_DYNAMIC_DISPATCH(RotateInterleaved) : HWY_DYNAMIC_DISPATCH(RotateHalf);
  const hal::DType dtype = constants.dtype();
  RowsIn from(args, 0, dtype);
  RowsOut to(args, 2, dtype);
  const std::int64_t n = heads * d;
  for (std::int64_t item = begin; item < end; ++item) {
    const float* table = args.at(1) + item % angles * 2 * frequencies;
    const float* rows = from.row(item * n, n);
    float* rotated = to.row(item * n, n);
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* x = rows + h * d;
      float* y = rotated + h * d;
      rotate(x, y, table, table + frequencies, frequencies);
      if (x != y && d > 2 * frequencies)
        std::memcpy(y + 2 * frequencies, x + 2 * frequencies,
                    static_cast<std::size_t>(d - 2 * frequencies) * sizeof(float));
    }
    to.done();
  }
}

std::int64_t frequencies_of(const kernels::CallView& call) {
  const std::int64_t dims = call.attrs.integer("dims");
  return (dims == 0 ? call.inputs[0].dim(-1) : dims) / 2;
}

// Rows of the table.
std::int64_t angles_of(const kernels::CallView& call) {
  const kernels::TensorType& x = call.inputs[0];
  return kernels::rope_positions(call) ? x.dim(0) * x.dim(1) : x.dim(1);
}

Constants table_constants(const kernels::CallView& call) {
  const kernels::Attrs& attrs = call.attrs;
  const kernels::RopeScaling scaling = kernels::rope_scaling(attrs);
  const std::vector<double> factors = kernels::rope_factors(attrs);
  Constants constants = Constants()
                            .integer(frequencies_of(call))
                            .integer(attrs.integer("offset"))
                            .real(attrs.number("theta"))
                            .real(attrs.flag("inverse") ? -1 : 1)
                            .real(1 / scaling.factor)
                            .real(scaling.by_frequency)
                            .real(scaling.by_pair)
                            .real(scaling.shift)
                            .real(kernels::rope_magnitude(attrs))
                            .integer(kernels::rope_positions(call))
                            .integer(!factors.empty());
  for (const double factor : factors) constants.real(factor);
  return constants;
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  std::string reason = refusal(call, true);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  if (static_cast<std::int64_t>(table_constants(call).words().size()) > target.limits.max_constant_words)
    return kernels::Fit::no("its factors are more constants than a kernel takes");
  return kernels::Fit::yes({}, angles_of(call) * 2 * frequencies_of(call) * 4);
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::TensorType& x = args.call.inputs[0];
  const kernels::Attrs& attrs = args.call.attrs;
  const std::int64_t frequencies = frequencies_of(args.call), angles = angles_of(args.call);
  const Constants constants = table_constants(args.call);
  if (kernels::rope_positions(args.call))
    record(args, "rope_table", angles, {writes(args.workspace), reads(args.inputs[1])}, constants);
  else
    record(args, "rope_table", angles, {writes(args.workspace)}, constants);
  args.commands.barrier();
  record(args, "rope_rotate", x.dim(0) * x.dim(1),
         {reads(args.inputs[0]), reads(args.workspace), writes(args.outputs[0])},
         Constants()
             .integer(angles)
             .integer(x.dim(2))
             .integer(x.dim(3))
             .integer(frequencies)
             .integer(attrs.text("pairing") == "interleaved")
             .dtype(x.dtype));
}

}  // namespace

Ops rope_ops() {
  return {
      {{"rope_table", run_table}, {"rope_rotate", run_rotate}},
      {{"rope",
        {low_precision_variant("one table of angles per call, shared by all heads and rows", fit, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
