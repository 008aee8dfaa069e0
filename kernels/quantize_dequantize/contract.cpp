#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/quantize_dequantize/quantize_dequantize.h"

namespace meshloom::kernels {
namespace {

EightBitFloat format_of(std::string_view op, const Attrs& attrs) {
  for (const EightBitFloat format : {EightBitFloat::e4m3, EightBitFloat::e5m2})
    if (to_string(format) == attrs.text("format")) return format;
  throw hal::Error(std::string(op), "format must be e4m3 or e5m2", "'" + attrs.text("format") + "'");
}

std::vector<TensorType> infer_one(std::string_view op, const std::vector<TensorType>& inputs,
                                  const Attrs& attrs) {
  Rules rules(op, inputs, attrs);
  rules.attributes({"format"});
  rules.inputs({"x"});
  rules.floating(0);
  rules.rank(0, 2, 2);
  (void)rules.text("format");
  (void)format_of(op, attrs);
  return {rules[0]};
}
std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  return infer_one("quantize_dequantize", inputs, attrs);
}
std::vector<TensorType> infer_gradient(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  return infer_one("quantize_dequantize_grad", inputs, attrs);
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const RoundingSteps steps = rounding_steps(rounding_format(call));
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * columns;
    float largest = 0;
    for (std::int64_t c = 0; c < columns; ++c)
      largest = std::isnan(x[c]) || std::isnan(largest) ? std::numeric_limits<float>::quiet_NaN()
                                                        : std::max(largest, std::abs(x[c]));
    const std::uint32_t top = top_exponent(largest);
    for (std::int64_t c = 0; c < columns; ++c)
      outputs[0].as<float>()[r * columns + c] = round_to(steps, top, x[c]);
  }
}
void copy(const CallView& call, std::span<const ConstTensorView> inputs,
          std::span<const TensorView> outputs) {
  std::memmove(outputs[0].data, inputs[0].data, static_cast<std::size_t>(call.inputs[0].bytes()));
}

std::vector<Tensor> pass(const GradientArgs& args) { return {args.cotangents[0]}; }
std::vector<Tensor> rounded(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return {quantize_dequantize(args.cotangents[0], format_of("quantize_dequantize_grad", args.call.attrs))};
}

double no_bytes(const CallView&) { return 0; }
std::string partition(const CallView&) { return "m.->m."; }
std::string partition_gradient(const CallView&) { return "mn->mn"; }
// A parameter is rounded as it is, in f32, and what the product reads is a copy: its gradient then stays f32.
LowPrecision low_precision(const CallView&) { return {.any = {0}}; }
LowPrecision low_precision_gradient(const CallView&) { return {.same = {0}}; }
Tolerance exact(const CallView&) { return {}; }
std::vector<std::pair<int, int>> in_place(const CallView&) { return {{0, 0}}; }

Case make(std::string name, std::int64_t m, std::int64_t k, EightBitFloat format, bool slow = false) {
  return {std::move(name), {{DType::f32, {m, k}}}, {{"format", std::string(to_string(format))}}, slow};
}
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const EightBitFloat format : {EightBitFloat::e4m3, EightBitFloat::e5m2}) {
    const std::string end = "-" + std::string(to_string(format));
    for (const auto& [m, k] :
         {std::pair{1, 1}, {1, 130}, {40, 1}, {37, 53}, {64, 128}, {33, 1031}, {2, 9001}})
      result.push_back(make(std::to_string(m) + "x" + std::to_string(k) + end, m, k, format));
    result.push_back(make("smollm2-ffn" + end, 1536, 576, format, true));
  }
  return result;
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t m = rng.extent(90), k = rng.extent(300);
  return make("random", m, k, rng.flip() ? EightBitFloat::e4m3 : EightBitFloat::e5m2);
}

// Rows of any size with magnitudes down to nothing, ties, the largest numbers, and what is not finite.
void make_input(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  fill_uniform(into, mix(seed, 0), -1, 1);
  Rng rng(seed);
  constexpr float kSizes[] = {1, 1.75f, 3e-5f, 1e-27f, 2e38f, 0, 1e-40f, 448};
  for (std::int64_t r = 0; r < rows; ++r) {
    float* x = into.as<float>() + r * columns;
    const float size = rng.flip() ? 1 : kSizes[r % 8];
    for (std::int64_t c = 0; c < columns; ++c) {
      x[c] *= size;
      if (c % 5 == 1) x[c] = std::ldexp(x[c], -static_cast<int>(rng.integer(1, 30)));
      if (c % 7 == 2)
        x[c] = std::ldexp(static_cast<float>(rng.integer(-40, 40)), -static_cast<int>(rng.integer(4, 24))) *
               size;
    }
    if (rng.flip(0.05)) x[columns / 2] = std::numeric_limits<float>::infinity();
    if (rng.flip(0.05)) x[columns - 1] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace

EightBitFloat rounding_format(const CallView& call) { return format_of(call.op, call.attrs); }

Tensor quantize_dequantize(Tensor x, EightBitFloat format) {
  return x.builder->call1("quantize_dequantize", {x}, {{"format", std::string(to_string(format))}});
}
Tensor quantize_dequantize_grad(Tensor x, EightBitFloat format) {
  return x.builder->call1("quantize_dequantize_grad", {x}, {{"format", std::string(to_string(format))}});
}

void add_quantize_dequantize(Catalog& catalog) {
  catalog.add(Contract{.name = "quantize_dequantize",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision,
                       .gradient = pass,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case});
  catalog.add(Contract{.name = "quantize_dequantize_grad",
                       .infer = infer_gradient,
                       .flops = no_flops,
                       .bytes = no_bytes,
                       .reference = copy,
                       .low_precision = low_precision_gradient,
                       .gradient = rounded,
                       .partition = partition_gradient,
                       .tolerance = exact,
                       .cases = cases,
                       .in_place = in_place,
                       .view = true,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
