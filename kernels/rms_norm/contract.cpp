#include <cmath>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/rms_norm/rms_norm.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("rms_norm", inputs, attrs);
  rules.inputs({"x", "w"});
  rules.attributes({"eps"});
  rules.floating(0);
  for (int i = 1; i < 2; ++i) rules.dtype(i, DType::f32);
  rules.rank(0, 2, 8);
  rules.shape(1, {rules[0].dim(-1)});
  rules.require(rules.number("eps") > 0, "eps must be positive", std::to_string(rules.number("eps")));
  return {rules[0], {DType::f32, leading(rules[0].shape)}};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("rms_norm_grad", inputs, attrs);
  rules.attributes({}, {"residual"});
  const bool residual = rules.flag("residual");
  if (residual)
    rules.inputs({"x", "w", "rstd", "dy", "residual"});
  else
    rules.inputs({"x", "w", "rstd", "dy"});
  rules.floats({0, 3});
  if (residual) rules.floats({0, 4});
  for (int i = 1; i < 3; ++i) rules.dtype(i, DType::f32);
  rules.rank(0, 2, 8);
  rules.shape(1, {rules[0].dim(-1)});
  rules.shape(2, leading(rules[0].shape));
  rules.shape(3, rules[0].shape);
  if (residual) rules.shape(4, rules[0].shape);
  return {rules[0], rules[1]};
}

double flops(const CallView& call) { return 4.0 * static_cast<double>(call.inputs[0].elements()); }
double flops_grad(const CallView& call) {
  return (call.attrs.flag("residual") ? 10.0 : 9.0) * static_cast<double>(call.inputs[0].elements());
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[1].elements(), rows = call.inputs[0].elements() / n;
  const double eps = call.attrs.number("eps");
  const float* w = inputs[1].as<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    float* y = outputs[0].as<float>() + r * n;
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * rstd * w[i]);
    outputs[1].as<float>()[r] = static_cast<float>(rstd);
  }
}

// With h = x rstd and g = dy w: dx = rstd (g - h mean(g h)) + residual, dw = sum over rows of dy h.
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[1].elements(), rows = call.inputs[0].elements() / n;
  const float* w = inputs[1].as<float>();
  std::vector<double> dw(static_cast<std::size_t>(n), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    const float* dy = inputs[3].as<float>() + r * n;
    const float* residual = call.attrs.flag("residual") ? inputs[4].as<float>() + r * n : nullptr;
    float* dx = outputs[0].as<float>() + r * n;
    const double rstd = inputs[2].as<float>()[r];
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(dy[i]) * w[i] * x[i] * rstd;
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double h = x[i] * rstd, g = static_cast<double>(dy[i]) * w[i];
      dw[static_cast<std::size_t>(i)] += dy[i] * h;
      dx[i] = static_cast<float>(rstd * (g - h * mean) + (residual ? residual[i] : 0.0));
    }
  }
  for (std::int64_t i = 0; i < n; ++i)
    outputs[1].as<float>()[i] = static_cast<float>(dw[static_cast<std::size_t>(i)]);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (args.cotangents[1]) throw hal::Error("rms_norm", "has no gradient through rstd");
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}};
  return args.builder.call("rms_norm_grad",
                           {args.inputs[0], args.inputs[1], args.outputs[1], args.cotangents[0]});
}

// Normalised rows must be whole.
std::string rows_of(const CallView& call) { return letters(call.inputs[0].rank() - 1); }
std::string partition(const CallView& call) {
  const std::string rows = rows_of(call);
  return rows + ".,.->" + rows + ".," + rows;
}
std::string partition_grad(const CallView& call) {
  const std::string rows = rows_of(call);
  const std::string residual = call.attrs.flag("residual") ? "," + rows + "." : "";
  return rows + ".,.," + rows + "," + rows + "." + residual + "->" + rows + ".,.";
}

LowPrecision low_precision_x(const CallView&) { return {.same = {0}}; }
LowPrecision low_precision_grad(const CallView& call) {
  if (call.attrs.flag("residual")) return {.same = {0, 3, 4}};
  return {.same = {0, 3}};
}

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[1].elements()), 8);
}
Tolerance tolerance_grad(const CallView& call) {
  const auto n = static_cast<double>(call.inputs[1].elements());
  const double rows = static_cast<double>(call.inputs[0].elements()) / n;
  Tolerance result = sum_tolerance(n + rows, 16);
  result.scale = 1;
  return result;
}

std::vector<std::pair<int, int>> in_place_grad(const CallView& call) {
  if (call.attrs.flag("residual")) return {{4, 0}, {3, 0}};
  return {{3, 0}};
}

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  // Short rows could be all but zero, where the norm amplifies every rounding error.
  const std::int64_t n = call.inputs[1].elements();
  if (index != 0 || n >= 16) return;
  float* x = into.as<float>();
  for (std::int64_t i = 0; i < into.type.elements(); i += n) x[i] += x[i] < 0 ? -0.5f : 0.5f;
}

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index != 2) return make_input(call, index, seed, into);
  HostTensor x(call.inputs[0]), w(call.inputs[1]), y(call.inputs[0]);
  make_input(call, 0, seed, {x.type, x.data.data()});
  make_input(call, 1, seed, {w.type, w.data.data()});
  const std::vector<TensorType> in{x.type, w.type}, out{y.type, into.type};
  const Attrs attrs{{"eps", 1e-5}};
  const std::vector<ConstTensorView> from{{x.type, x.data.data()}, {w.type, w.data.data()}};
  const std::vector<TensorView> to{{y.type, y.data.data()}, into};
  reference({"rms_norm", in, out, attrs}, from, to);
}

const std::vector<std::pair<std::string, Shape>>& shapes() {
  static const std::vector<std::pair<std::string, Shape>> all{
      {"row", {1, 64}},         {"rows", {17, 33}}, {"prime", {7, 131}},     {"three-d", {2, 9, 96}},
      {"heads", {3, 5, 4, 40}}, {"tiny", {37, 3}},  {"one", {5, 1}},         {"wide", {3, 1031}},
      {"many", {257, 24}},      {"page", {8, 576}}, {"smollm2", {128, 576}}, {"llama-1b", {512, 2048}}};
  return all;
}
Case forward(const std::string& name, const Shape& shape, double eps, bool slow) {
  return {name, {{DType::f32, shape}, {DType::f32, {shape.back()}}}, {{"eps", eps}}, slow};
}
Case backward(const std::string& name, const Shape& shape, bool slow, bool residual = false) {
  const TensorType x{DType::f32, shape};
  Case result{name, {x, {DType::f32, {shape.back()}}, {DType::f32, leading(shape)}, x}, {}, slow};
  if (!residual) return result;
  result.name += "_residual";
  result.attrs.set("residual", true);
  result.inputs.push_back(x);
  return result;
}
bool is_slow(const Shape& shape) { return elements(shape) > 50000; }
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const auto& [name, shape] : shapes()) result.push_back(forward(name, shape, 1e-5, is_slow(shape)));
  result.push_back(forward("large-eps", {9, 20}, 0.1, false));
  return result;
}
std::vector<Case> cases_grad() {
  std::vector<Case> result;
  for (const bool residual : {false, true})
    for (const auto& [name, shape] : shapes())
      result.push_back(backward(name, shape, is_slow(shape), residual));
  return result;
}
Shape random_shape(const CaseSeed& seed) {
  Rng rng(seed);
  Shape shape{rng.extent(80), rng.extent(300)};
  if (rng.flip(0.3)) shape = {rng.extent(9), rng.extent(9), rng.extent(150)};
  return shape;
}
Case random_case(const CaseSeed& seed) { return forward("random", random_shape(seed), 1e-5, false); }
Case random_grad(const CaseSeed& seed) {
  return backward("random", random_shape(seed), false, Rng(seed.seed >> 32).flip());
}

}  // namespace

Tensor rms_norm(Tensor x, Tensor weight, double eps) {
  return x.builder->call("rms_norm", {x, weight}, {{"eps", eps}}).front();
}

void add_rms_norm(Catalog& catalog) {
  catalog.add(Contract{.name = "rms_norm",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision_x,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
  catalog.add(Contract{.name = "rms_norm_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes_once,
                       .reference = reference_grad,
                       .low_precision = low_precision_grad,
                       .partition = partition_grad,
                       .tolerance = tolerance_grad,
                       .cases = cases_grad,
                       .in_place = in_place_grad,
                       .make_input = make_input_grad,
                       .random_case = random_grad});
}

}  // namespace meshloom::kernels
