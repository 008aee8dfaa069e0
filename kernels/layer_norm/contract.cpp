#include <cmath>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/layer_norm/layer_norm.h"

namespace meshloom::kernels {
namespace {

constexpr double kCaseEps = 1e-5;  // of the cases

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("layer_norm", inputs, attrs);
  rules.inputs({"x", "w", "b"});
  rules.attributes({"eps"});
  rules.floating(0);
  for (int i = 1; i < 3; ++i) rules.dtype(i, DType::f32);
  rules.rank(0, 2, 8);
  rules.shape(1, {rules[0].dim(-1)});
  rules.shape(2, {rules[0].dim(-1)});
  rules.require(rules.number("eps") > 0, "eps must be positive", std::to_string(rules.number("eps")));
  const TensorType rows{DType::f32, leading(rules[0].shape)};
  return {rules[0], rows, rows};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("layer_norm_grad", inputs, attrs);
  rules.attributes({}, {"residual"});
  const bool residual = rules.flag("residual");
  if (residual)
    rules.inputs({"x", "w", "mean", "rstd", "dy", "residual"});
  else
    rules.inputs({"x", "w", "mean", "rstd", "dy"});
  rules.floats({0, 4});
  if (residual) rules.floats({0, 5});
  for (int i = 1; i < 4; ++i) rules.dtype(i, DType::f32);
  rules.rank(0, 2, 8);
  rules.shape(1, {rules[0].dim(-1)});
  rules.shape(2, leading(rules[0].shape));
  rules.shape(3, leading(rules[0].shape));
  rules.shape(4, rules[0].shape);
  if (residual) rules.shape(5, rules[0].shape);
  return {rules[0], rules[1], rules[1]};
}

double flops(const CallView& call) { return 7.0 * static_cast<double>(call.inputs[0].elements()); }
double flops_grad(const CallView& call) {
  return (call.attrs.flag("residual") ? 15.0 : 14.0) * static_cast<double>(call.inputs[0].elements());
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[1].elements(), rows = call.inputs[0].elements() / n;
  const double eps = call.attrs.number("eps");
  const float* w = inputs[1].as<float>();
  const float* b = inputs[2].as<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    float* y = outputs[0].as<float>() + r * n;
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(n);
    const double rstd = 1 / std::sqrt(variance + eps);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>((x[i] - mean) * rstd * w[i] + b[i]);
    outputs[1].as<float>()[r] = static_cast<float>(mean);
    outputs[2].as<float>()[r] = static_cast<float>(rstd);
  }
}

// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)) + residual, dw = sum over rows of dy h,
// db = sum over rows of dy.
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[1].elements(), rows = call.inputs[0].elements() / n;
  const float* w = inputs[1].as<float>();
  std::vector<double> dw(static_cast<std::size_t>(n), 0.0), db(static_cast<std::size_t>(n), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    const float* dy = inputs[4].as<float>() + r * n;
    const float* residual = call.attrs.flag("residual") ? inputs[5].as<float>() + r * n : nullptr;
    float* dx = outputs[0].as<float>() + r * n;
    const double mean = inputs[2].as<float>()[r], rstd = inputs[3].as<float>()[r];
    double mean_g = 0, mean_gh = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double g = static_cast<double>(dy[i]) * w[i];
      mean_g += g;
      mean_gh += g * (x[i] - mean) * rstd;
    }
    mean_g /= static_cast<double>(n);
    mean_gh /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double h = (x[i] - mean) * rstd, g = static_cast<double>(dy[i]) * w[i];
      dw[static_cast<std::size_t>(i)] += dy[i] * h;
      db[static_cast<std::size_t>(i)] += dy[i];
      dx[i] = static_cast<float>(rstd * (g - mean_g - h * mean_gh) + (residual ? residual[i] : 0.0));
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    outputs[1].as<float>()[i] = static_cast<float>(dw[static_cast<std::size_t>(i)]);
    outputs[2].as<float>()[i] = static_cast<float>(db[static_cast<std::size_t>(i)]);
  }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (args.cotangents[1] || args.cotangents[2])
    throw hal::Error("layer_norm", "has no gradient through mean or rstd");
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}, Tensor{}};
  return args.builder.call("layer_norm_grad", {args.inputs[0], args.inputs[1], args.outputs[1],
                                               args.outputs[2], args.cotangents[0]});
}

std::string partition(const CallView& call) {
  const std::string rows = letters(call.inputs[0].rank() - 1);
  return rows + ".,.,.->" + rows + ".," + rows + "," + rows;
}
std::string partition_grad(const CallView& call) {
  const std::string rows = letters(call.inputs[0].rank() - 1);
  const std::string residual = call.attrs.flag("residual") ? "," + rows + "." : "";
  return rows + ".,.," + rows + "," + rows + "," + rows + "." + residual + "->" + rows + ".,.,.";
}

LowPrecision low_precision_x(const CallView&) { return {.same = {0}}; }
LowPrecision low_precision_grad(const CallView& call) {
  if (call.attrs.flag("residual")) return {.same = {0, 4, 5}};
  return {.same = {0, 4}};
}

Tolerance tolerance(const CallView& call) {
  Tolerance result = sum_tolerance(static_cast<double>(call.inputs[1].elements()), 16);
  result.scale = 1;
  return result;
}
Tolerance tolerance_grad(const CallView& call) {
  const auto n = static_cast<double>(call.inputs[1].elements());
  const double rows = static_cast<double>(call.inputs[0].elements()) / n;
  Tolerance result = sum_tolerance(n + rows, 32);
  // A row of one element has no variance: what cancels is as large as rstd is there, 1 / sqrt(eps).
  result.scale = n == 1 ? 1 / std::sqrt(kCaseEps) : 1;
  return result;
}

std::vector<std::pair<int, int>> in_place_grad(const CallView& call) {
  if (call.attrs.flag("residual")) return {{5, 0}, {4, 0}};
  return {{4, 0}};
}

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  // Short rows could be all but constant, where the norm amplifies every rounding error.
  const std::int64_t n = call.inputs[1].elements();
  if (index != 0 || n >= 16) return;
  float* x = into.as<float>();
  for (std::int64_t i = 0; i < into.type.elements(); ++i) x[i] = x[i] / 4 + (i % n % 2 ? -0.5f : 0.75f);
}

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index != 2 && index != 3) return make_input(call, index, seed, into);
  HostTensor x(call.inputs[0]), w(call.inputs[1]), b(call.inputs[1]), y(call.inputs[0]),
      other(call.inputs[2]);
  make_input(call, 0, seed, {x.type, x.data.data()});
  const TensorView spare{other.type, other.data.data()};
  const std::vector<TensorType> in{x.type, w.type, b.type}, out{y.type, into.type, into.type};
  const Attrs attrs{{"eps", kCaseEps}};
  const std::vector<ConstTensorView> from{
      {x.type, x.data.data()}, {w.type, w.data.data()}, {b.type, b.data.data()}};
  const std::vector<TensorView> to{
      {y.type, y.data.data()}, index == 2 ? into : spare, index == 2 ? spare : into};
  reference({"layer_norm", in, out, attrs}, from, to);
}

const std::vector<std::pair<std::string, Shape>>& shapes() {
  static const std::vector<std::pair<std::string, Shape>> all{
      {"row", {1, 64}},    {"rows", {17, 33}},   {"prime", {7, 131}}, {"three-d", {2, 9, 96}},
      {"tiny", {37, 3}},   {"two", {11, 2}},     {"one", {5, 1}},     {"wide", {3, 1031}},
      {"many", {257, 24}}, {"gpt2", {1024, 768}}};
  return all;
}
Case forward(const std::string& name, const Shape& shape, double eps, bool slow) {
  const TensorType vector{DType::f32, {shape.back()}};
  return {name, {{DType::f32, shape}, vector, vector}, {{"eps", eps}}, slow};
}
Case backward(const std::string& name, const Shape& shape, bool slow, bool residual = false) {
  const TensorType x{DType::f32, shape}, vector{DType::f32, {shape.back()}}, rows{DType::f32, leading(shape)};
  Case result{name, {x, vector, rows, rows, x}, {}, slow};
  if (!residual) return result;
  result.name += "_residual";
  result.attrs.set("residual", true);
  result.inputs.push_back(x);
  return result;
}
bool is_slow(const Shape& shape) { return elements(shape) > 50000; }
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const auto& [name, shape] : shapes()) result.push_back(forward(name, shape, kCaseEps, is_slow(shape)));
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
  if (rng.flip(0.3)) return {rng.extent(9), rng.extent(9), rng.extent(150)};
  return {rng.extent(80), rng.extent(300)};
}
Case random_case(const CaseSeed& seed) { return forward("random", random_shape(seed), kCaseEps, false); }
Case random_grad(const CaseSeed& seed) {
  return backward("random", random_shape(seed), false, Rng(seed.seed >> 32).flip());
}

}  // namespace

Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, double eps) {
  return x.builder->call("layer_norm", {x, weight, bias}, {{"eps", eps}}).front();
}

void add_layer_norm(Catalog& catalog) {
  catalog.add(Contract{.name = "layer_norm",
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
  catalog.add(Contract{.name = "layer_norm_grad",
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
