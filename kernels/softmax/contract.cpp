#include "kernels/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("softmax", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({});
  rules.dtype(0, DType::f32);
  rules.rank(0, 2, 8);
  return {rules[0], {DType::f32, leading(rules[0].shape)}};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("softmax_grad", inputs, attrs);
  rules.attributes({}, {"lse"});
  std::vector<std::string> names{"y", "dy"};
  if (rules.flag("lse")) names.push_back("dlse");
  rules.inputs(std::move(names));
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) rules.dtype(i, DType::f32);
  rules.rank(0, 2, 8);
  rules.shape(1, rules[0].shape);
  if (rules.flag("lse")) rules.shape(2, leading(rules[0].shape));
  return {rules[0]};
}

double flops(const CallView& call) { return 4.0 * static_cast<double>(call.inputs[0].elements()); }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(-1), rows = call.inputs[0].elements() / n;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    const double largest = *std::max_element(x, x + n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
    const double lse = largest + std::log(sum);
    for (std::int64_t i = 0; i < n; ++i)
      outputs[0].as<float>()[r * n + i] = static_cast<float>(std::exp(x[i] - lse));
    outputs[1].as<float>()[r] = static_cast<float>(lse);
  }
}

void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(-1), rows = call.inputs[0].elements() / n;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *y = inputs[0].as<float>() + r * n, *dy = inputs[1].as<float>() + r * n;
    double shift = inputs.size() > 2 ? inputs[2].as<float>()[r] : 0.0;
    for (std::int64_t i = 0; i < n; ++i) shift -= static_cast<double>(y[i]) * dy[i];
    for (std::int64_t i = 0; i < n; ++i)
      outputs[0].as<float>()[r * n + i] = static_cast<float>(y[i] * (dy[i] + shift));
  }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  const Tensor dlse = args.cotangents[1];
  Tensor dy = args.cotangents[0];
  if (!dy && !dlse) return {Tensor{}};
  if (!dy) dy = constant(args.builder, 0, args.outputs[0].shape());
  if (!dlse) return {args.builder.call1("softmax_grad", {args.outputs[0], dy})};
  return {args.builder.call1("softmax_grad", {args.outputs[0], dy, dlse}, {{"lse", true}})};
}

std::string partition(const CallView& call) {
  const std::string rows = letters(call.inputs[0].rank() - 1);
  return rows + ".->" + rows + ".," + rows;
}
std::string partition_grad(const CallView& call) {
  const std::string rows = letters(call.inputs[0].rank() - 1);
  return rows + ".," + rows + (call.inputs.size() > 2 ? ".," + rows : ".") + "->" + rows + ".";
}

// Logits may be large (make_input adds 90): their difference from lse is off by an ulp of that.
Tolerance tolerance(const CallView& call) {
  Tolerance result = sum_tolerance(static_cast<double>(call.inputs[0].dim(-1)), 64);
  result.scale = 1;
  result.rel = 128 * hal::epsilon(DType::f32);
  return result;
}
Tolerance tolerance_grad(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].dim(-1)), 8);
}

std::vector<std::pair<int, int>> in_place(const CallView&) { return {{0, 0}}; }
std::vector<std::pair<int, int>> in_place_grad(const CallView&) { return {{1, 0}, {0, 0}}; }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -4, 4);
  const std::int64_t n = call.inputs[0].dim(-1), rows = call.inputs[0].elements() / n;
  // Rows whose exponentials overflow or vanish unless the maximum is taken off first.
  for (std::int64_t r = 1; r < rows; r += 3)
    for (std::int64_t i = 0; i < n; ++i) into.as<float>()[r * n + i] += r % 2 ? 90.0f : -120.0f;
}

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  if (index != 0) return;
  const std::int64_t n = call.inputs[0].dim(-1), rows = call.inputs[0].elements() / n;
  for (std::int64_t r = 0; r < rows; ++r) {  // probabilities
    float* y = into.as<float>() + r * n;
    double sum = 1e-3;
    for (std::int64_t i = 0; i < n; ++i) sum += y[i] = std::abs(y[i]);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(y[i] / sum);
  }
}

struct Spec {
  std::string name;
  Shape shape;
  bool lse = false, slow = false;
};
std::vector<Spec> specs() {
  return {{"one", {1, 1}},
          {"two", {3, 2}, true},
          {"experts", {37, 8}, true},
          {"prime", {17, 31}},
          {"row", {1, 257}},
          {"cube", {3, 5, 64}, true},
          {"wide", {3, 4099}, true},
          {"many", {1031, 7}},
          {"qwen3-moe", {4096, 128}, true, true},
          {"mixtral", {4096, 8}, false, true}};
}
Case forward(const Spec& s) { return {s.name, {{DType::f32, s.shape}}, {}, s.slow}; }
Case backward(const Spec& s) {
  const TensorType x{DType::f32, s.shape};
  if (!s.lse) return {s.name, {x, x}, {}, s.slow};
  return {s.name, {x, x, {DType::f32, leading(s.shape)}}, {{"lse", true}}, s.slow};
}
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(forward(spec));
  return result;
}
std::vector<Case> cases_grad() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(backward(spec));
  return result;
}
Spec random_spec(const CaseSeed& seed) {
  Rng rng(seed);
  return {"random", {rng.extent(90), rng.extent(300)}, rng.flip()};
}
Case random_case(const CaseSeed& seed) { return forward(random_spec(seed)); }
Case random_grad(const CaseSeed& seed) { return backward(random_spec(seed)); }

}  // namespace

Softmax softmax(Tensor x) {
  const std::vector<Tensor> outputs = x.builder->call("softmax", {x});
  return {outputs[0], outputs[1]};
}

void add_softmax(Catalog& catalog) {
  catalog.add(Contract{.name = "softmax",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case});
  catalog.add(Contract{.name = "softmax_grad",
                       .infer = infer_grad,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference_grad,
                       .partition = partition_grad,
                       .tolerance = tolerance_grad,
                       .cases = cases_grad,
                       .in_place = in_place_grad,
                       .make_input = make_input_grad,
                       .random_case = random_grad});
}

}  // namespace meshloom::kernels
