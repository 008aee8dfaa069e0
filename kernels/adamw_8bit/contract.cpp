#include "hal/math.h"
#include "kernels/adamw_8bit/parts.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels {
namespace {

using namespace adamw_8bit_parts;

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("adamw_8bit", inputs, attrs);
  rules.inputs({"p", "g", "m", "v", "control"});
  rules.attributes({"beta1", "beta2", "eps", "weight_decay"}, {"dtype"});
  for (const int i : {kP, kG, kControl}) rules.dtype(i, DType::f32);
  rules.shape(kG, rules[kP].shape);
  rules.shape(kControl, {4});
  for (const int i : {kM, kV}) {
    rules.dtype(i, DType::u8);
    rules.shape(i, moment_type(rules[kP]).shape);
  }
  require_attributes(rules);
  std::vector<TensorType> outputs{rules[kP], rules[kM], rules[kV]};
  add_copy(rules, attrs, outputs);
  return outputs;
}

// Those of AdamW, and eight lines for each of two codes and two magnitudes.
double flops(const CallView& call) { return 90.0 * static_cast<double>(call.inputs[kP].elements()); }

// A block is whole on one shard.
std::string partition(const CallView& call) {
  const std::string p(static_cast<std::size_t>(call.inputs[kP].rank()), '.');
  return p + "," + p + ",..,..,.->" + p + ",..,.." + (has_copy(call) ? "," + p : "");
}

std::vector<std::pair<int, int>> in_place(const CallView&) { return {{kP, 0}, {kM, 1}, {kV, 2}}; }

}  // namespace

// As of adamw; a magnitude is rounded once more.
Tolerance adamw_8bit_parts::tolerance(const CallView&) {
  const double eps = hal::epsilon(DType::f32);
  return {16 * eps, 16 * eps, 0.01};
}

TensorType moment_type(const TensorType& parameter) {
  return {DType::u8, {hal::ceil_div(parameter.elements(), kMomentBlock), kMomentBlockBytes}};
}

AdamWResult adamw_8bit(Tensor p, Tensor g, Tensor m, Tensor v, Tensor control, const AdamWOptions& options) {
  const std::vector<Tensor> outputs =
      p.builder->call("adamw_8bit", {p, g, m, v, control}, attributes(options));
  return {outputs[0], outputs[1], outputs[2]};
}

void add_adamw_8bit(Catalog& catalog) {
  catalog.add(Contract{.name = "adamw_8bit",
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
