#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "hal/dtype.h"
#include "kernels/adamw/parts.h"
#include "kernels/core/catalog.h"
#include "kernels/core/compare.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels {
namespace {

using namespace adamw_parts;

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("adamw", inputs, attrs);
  rules.inputs({"p", "g", "m", "v", "control"});
  rules.attributes({"beta1", "beta2", "eps", "weight_decay"}, {"dtype"});
  for (int i = 0; i < 5; ++i) rules.dtype(i, DType::f32);
  for (int i = kG; i <= kV; ++i) rules.shape(i, rules[kP].shape);
  rules.shape(kControl, {4});
  require_attributes(rules);
  std::vector<TensorType> outputs{rules[kP], rules[kM], rules[kV]};
  add_copy(rules, attrs, outputs);
  return outputs;
}

double flops(const CallView& call) { return 18.0 * static_cast<double>(call.inputs[kP].elements()); }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const float* control = inputs[kControl].as<float>();
  const std::size_t bytes = static_cast<std::size_t>(call.inputs[kP].bytes());
  if (control[kApply] == 0) {
    std::memmove(outputs[0].data, inputs[kP].data, bytes);
    std::memmove(outputs[1].data, inputs[kM].data, bytes);
    std::memmove(outputs[2].data, inputs[kV].data, bytes);
    reference_copy(call, outputs);
    return;
  }
  const double b1 = call.attrs.number("beta1"), b2 = call.attrs.number("beta2");
  const double eps = call.attrs.number("eps"), decay = call.attrs.number("weight_decay");
  const double rate = control[kRate], scale = control[kScale], step = control[kStep];
  const double correct1 = 1 - std::pow(b1, step), correct2 = 1 - std::pow(b2, step);
  for (std::int64_t i = 0; i < call.inputs[kP].elements(); ++i) {
    const double p = inputs[kP].as<float>()[i], g = scale * inputs[kG].as<float>()[i];
    const double m = b1 * inputs[kM].as<float>()[i] + (1 - b1) * g;
    const double v = b2 * inputs[kV].as<float>()[i] + (1 - b2) * g * g;
    outputs[0].as<float>()[i] =
        static_cast<float>(p - rate * (m / correct1 / (std::sqrt(v / correct2) + eps) + decay * p));
    outputs[1].as<float>()[i] = static_cast<float>(m);
    outputs[2].as<float>()[i] = static_cast<float>(v);
  }
  reference_copy(call, outputs);
}

std::string partition(const CallView& call) {
  const std::string p = letters(call.inputs[kP].rank());
  return p + "," + p + "," + p + "," + p + ",.->" + p + "," + p + "," + p + (has_copy(call) ? "," + p : "");
}

// No sum to speak of: a few ulps of numbers of size 1.
Tolerance tolerance(const CallView&) {
  const double eps = hal::epsilon(DType::f32);
  return {16 * eps, 8 * eps, 0.01};  // a lone parameter may be a small difference of larger numbers
}

Comparison judge(const CallView& call, std::span<const ConstTensorView>,
                 std::span<const ConstTensorView> want, std::span<const ConstTensorView> got, int output) {
  const auto o = static_cast<std::size_t>(output);
  return output == kCopy ? judge_copy(got) : compare(want[o], got[o], tolerance(call));
}

std::vector<std::pair<int, int>> in_place(const CallView&) { return {{kP, 0}, {kM, 1}, {kV, 2}}; }

// Every fourth seed: a step that is not applied, with a gradient that must not be looked at.
bool skipped(std::uint64_t seed) { return seed % 4 == 3; }

void make_input(const CallView&, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  if (index == kControl) {
    Rng rng(own);
    into.as<float>()[kRate] = static_cast<float>(rng.uniform(0.0001, 0.01));
    into.as<float>()[kScale] = static_cast<float>(rng.uniform(0.25, 1));
    into.as<float>()[kApply] = skipped(seed) ? 0 : 1;
    into.as<float>()[kStep] = static_cast<float>(rng.of({1, 2, 7, 1000, 30000}));
    return;
  }
  fill_uniform(into, own, index == kV ? 0.01 : -1, 1);
  if (index != kG || !skipped(seed)) return;
  into.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  into.as<float>()[into.type.elements() - 1] = std::numeric_limits<float>::infinity();
}

Case make(std::string name, Shape shape, double decay, double beta2 = 0.95, bool slow = false) {
  const TensorType p{DType::f32, std::move(shape)};
  return {std::move(name),
          {p, p, p, p, {DType::f32, {4}}},
          {{"beta1", 0.9}, {"beta2", beta2}, {"eps", 1e-8}, {"weight_decay", decay}},
          slow};
}
std::vector<Case> cases() {
  return {make("one", {1}, 0.1),
          make("vector", {131}, 0),
          make("matrix", {37, 29}, 0.1),
          make("cube", {3, 5, 17}, 0.1),
          make("slow-decay", {67}, 0.01, 0.999),
          make("page", {64, 65}, 0.1),
          with_copy(make("one", {1}, 0.1), DType::bf16),
          with_copy(make("vector", {131}, 0), DType::f16),
          with_copy(make("matrix", {37, 30}, 0.1), DType::bf16),
          with_copy(make("page", {64, 65}, 0.1), DType::bf16),
          with_copy(make("page", {64, 63}, 0.1), DType::f16),
          with_copy(make("cube", {3, 5, 36}, 0), DType::bf16),
          make("smollm2-ffn", {576, 1536}, 0.1, 0.95, true),
          with_copy(make("smollm2-ffn", {576, 1536}, 0.1, 0.95, true), DType::bf16)};
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  Shape shape{rng.extent(3000)};
  if (rng.flip()) shape = {rng.extent(90), rng.extent(90)};
  const Case plain = make("random", shape, rng.flip() ? 0 : 0.1, rng.flip() ? 0.95 : 0.999);
  return rng.flip() ? plain : with_copy(plain, rng.flip() ? DType::bf16 : DType::f16);
}

}  // namespace

Attrs adamw_parts::attributes(const AdamWOptions& options) {
  return {{"beta1", options.beta1},
          {"beta2", options.beta2},
          {"eps", options.eps},
          {"weight_decay", options.weight_decay}};
}

void adamw_parts::require_attributes(const Rules& rules) {
  for (const char* name : {"beta1", "beta2"})
    rules.require(rules.number(name) >= 0 && rules.number(name) < 1,
                  std::string(name) + " must be at least 0 and less than 1",
                  std::to_string(rules.number(name)));
  rules.require(rules.number("eps") > 0, "eps must be positive", std::to_string(rules.number("eps")));
  rules.require(rules.number("weight_decay") >= 0, "weight_decay must not be negative",
                std::to_string(rules.number("weight_decay")));
}

bool adamw_parts::has_copy(const CallView& call) { return call.attrs.has("dtype"); }

void adamw_parts::add_copy(const Rules& rules, const Attrs& attrs, std::vector<TensorType>& outputs) {
  if (!attrs.has("dtype")) return;
  const DType dtype = rules.result_dtype();
  rules.require(hal::is_low_precision(dtype), "dtype must be f16 or bf16", rules.text("dtype"));
  outputs.push_back({dtype, rules[kP].shape});
}

// Rounding is what run_reference() does around it.
void adamw_parts::reference_copy(const CallView& call, std::span<const TensorView> outputs) {
  if (has_copy(call))
    std::memcpy(outputs[kCopy].data, outputs[0].data, static_cast<std::size_t>(call.inputs[kP].bytes()));
}

Comparison adamw_parts::judge_copy(std::span<const ConstTensorView> got) {
  HostTensor rounded(got[kCopy].type);
  narrow(widened(got[0]), {rounded.type, rounded.data.data()});
  return compare({rounded.type, rounded.data.data()}, got[kCopy], {});
}

Case adamw_parts::with_copy(Case made, DType dtype) {
  made.attrs.set("dtype", std::string(hal::to_string(dtype)));
  made.name += "-" + made.attrs.text("dtype");
  return made;
}

AdamWResult adamw(Tensor p, Tensor g, Tensor m, Tensor v, Tensor control, const AdamWOptions& options) {
  const std::vector<Tensor> outputs = p.builder->call("adamw", {p, g, m, v, control}, attributes(options));
  return {outputs[0], outputs[1], outputs[2]};
}

void add_adamw(Catalog& catalog) {
  catalog.add(Contract{.name = "adamw",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case,
                       .judge = judge});
}

}  // namespace meshloom::kernels
