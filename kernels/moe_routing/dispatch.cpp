// moe_dispatch, moe_combine and row_dot: rows to their slots, and back.
#include <numeric>
#include <utility>

#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/moe_routing/parts.h"

namespace meshloom::kernels {
namespace {

// Two dimensions everywhere, integers in input `slot`, weights of f32 last where there are any, activations before both.
void check(Rules& rules, std::vector<std::string> names, int slot, bool may_weigh) {
  if (may_weigh)
    rules.attributes({}, {"weighted"});
  else
    rules.attributes({});
  const bool weighted = may_weigh && rules.flag("weighted");
  if (weighted) names.push_back("weight");
  const int count = static_cast<int>(names.size());
  rules.inputs(std::move(names));
  for (int i = 0; i < count; ++i) {
    if (i < slot)
      rules.floating(i);
    else
      rules.dtype(i, i == slot ? DType::i32 : DType::f32);
    rules.rank(i, 2, 2);
  }
  if (weighted) rules.shape(count - 1, rules[slot].shape);
}

std::vector<TensorType> infer_spread(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("moe_dispatch", inputs, attrs);
  check(rules, {"x", "slot"}, 1, true);
  rules.shape(1, {rules[0].dim(0), rules[1].dim(1)});
  return {{rules[0].dtype, {rules[1].elements(), rules[0].dim(1)}}};
}

std::vector<TensorType> infer_combine(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("moe_combine", inputs, attrs);
  check(rules, {"y", "slot"}, 1, true);
  rules.shape(0, {rules[1].elements(), rules[0].dim(1)});
  return {{rules[0].dtype, {rules[1].dim(0), rules[0].dim(1)}}};
}

std::vector<TensorType> infer_dot(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("row_dot", inputs, attrs);
  check(rules, {"y", "x", "slot"}, 2, false);
  rules.shape(0, {rules[2].elements(), rules[0].dim(1)});
  rules.shape(1, {rules[2].dim(0), rules[0].dim(1)});
  return {{DType::f32, rules[2].shape}};
}

double flops_spread(const CallView& call) {
  return call.inputs.size() > 2 ? static_cast<double>(call.outputs[0].elements()) : 0;
}
double flops_gather(const CallView& call) { return 2.0 * static_cast<double>(call.inputs[0].elements()); }

void reference_spread(const CallView& call, std::span<const ConstTensorView> inputs,
                      std::span<const TensorView> outputs) {
  const std::int64_t k = call.inputs[1].dim(1), d = call.inputs[0].dim(1);
  for (std::int64_t i = 0; i < call.inputs[1].elements(); ++i) {
    const std::int64_t slot = inputs[1].as<std::int32_t>()[i];
    const double weight = inputs.size() > 2 ? inputs[2].as<float>()[i] : 1.0;
    for (std::int64_t c = 0; c < d; ++c)
      outputs[0].as<float>()[slot * d + c] =
          static_cast<float>(weight * inputs[0].as<float>()[i / k * d + c]);
  }
}

void reference_combine(const CallView& call, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[1].dim(0), k = call.inputs[1].dim(1), d = call.inputs[0].dim(1);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < d; ++c) {
      double sum = 0;
      for (std::int64_t i = r * k; i < (r + 1) * k; ++i) {
        const double weight = inputs.size() > 2 ? inputs[2].as<float>()[i] : 1.0;
        sum += weight * inputs[0].as<float>()[inputs[1].as<std::int32_t>()[i] * d + c];
      }
      outputs[0].as<float>()[r * d + c] = static_cast<float>(sum);
    }
}

void reference_dot(const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs) {
  const std::int64_t k = call.inputs[2].dim(1), d = call.inputs[0].dim(1);
  for (std::int64_t i = 0; i < call.inputs[2].elements(); ++i) {
    const float* y = inputs[0].as<float>() + inputs[2].as<std::int32_t>()[i] * d;
    const float* x = inputs[1].as<float>() + i / k * d;
    outputs[0].as<float>()[i] = static_cast<float>(
        std::inner_product(y, y + d, x, 0.0, std::plus<>(), [](double a, double b) { return a * b; }));
  }
}

std::vector<Tensor> gradient_spread(const GradientArgs& args) {
  const bool weighted = args.inputs.size() > 2;
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dy = args.cotangents[0];
  if (!dy) return result;
  result[0] = moe_combine(dy, args.inputs[1], weighted ? args.inputs[2] : Tensor{});
  if (weighted) result[2] = row_dot(dy, args.inputs[0], args.inputs[1]);
  return result;
}
std::vector<Tensor> gradient_combine(const GradientArgs& args) {
  const bool weighted = args.inputs.size() > 2;
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dx = args.cotangents[0];
  if (!dx) return result;
  result[0] = moe_dispatch(dx, args.inputs[1], weighted ? args.inputs[2] : Tensor{});
  if (weighted) result[2] = row_dot(args.inputs[0], dx, args.inputs[1]);
  return result;
}
std::vector<Tensor> gradient_dot(const GradientArgs& args) {
  const Tensor dw = args.cotangents[0];
  if (!dw) return {Tensor{}, Tensor{}, Tensor{}};
  return {moe_dispatch(args.inputs[1], args.inputs[2], dw), moe_combine(args.inputs[0], args.inputs[2], dw),
          Tensor{}};
}

// Rows go anywhere: only features may be split.
std::string partition_move(const CallView& call) {
  // Rows sorted by group are those of a shard, as are the slots that say where. A shard that has some of the groups has the
  // summands of these: rows of others are zeros where they are combined (grouped_matmul).
  const bool dispatch = call.op == "moe_dispatch";
  return std::string(dispatch ? "nd,n.{ne}" : "nd{ne},n.{ne}") + (call.inputs.size() > 2 ? ",n." : "") +
         (dispatch ? "->nd{ne}" : "->nd");
}
std::string partition_dot(const CallView&) { return "n.{ne},n.,n.{ne}->n."; }

LowPrecision low_precision_move(const CallView&) { return {.same = {0}}; }
LowPrecision low_precision_dot(const CallView&) { return {.any = {0, 1}}; }

Tolerance tolerance_spread(const CallView& call) {
  return {call.inputs.size() > 2 ? hal::epsilon(DType::f32) : 0, 0, 0};
}
Tolerance tolerance_combine(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[1].dim(1)));
}
Tolerance tolerance_dot(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].dim(1)));
}

void fill_slots(const TensorView& into, std::uint64_t seed) {
  auto* slots = into.as<std::int32_t>();
  const std::int64_t count = into.type.elements();
  std::iota(slots, slots + count, 0);
  Rng rng(seed);
  for (std::int64_t i = count - 1; i > 0; --i) std::swap(slots[i], slots[rng.integer(0, i)]);
}
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (call.inputs[static_cast<std::size_t>(index)].dtype == DType::i32) return fill_slots(into, mix(seed, 9));
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
}

struct Spec {
  std::string name;
  std::int64_t n, k, d;
  bool weighted = false, slow = false;
};
std::vector<Spec> specs() {
  return {{"one", 1, 1, 1},          {"switch", 37, 1, 19, true},
          {"pairs", 29, 2, 33},      {"mixtral", 65, 2, 64, true},
          {"deep", 7, 9, 131, true}, {"narrow", 517, 3, 1, true},
          {"four", 16, 4, 16},       {"qwen3-moe", 4096, 8, 2048, true, true}};
}
Case move_case(const Spec& s, std::int64_t rows) {
  Case result{s.name, {{DType::f32, {rows, s.d}}, {DType::i32, {s.n, s.k}}}, {}, s.slow};
  if (s.weighted) {
    result.inputs.push_back({DType::f32, {s.n, s.k}});
    result.attrs.set("weighted", true);
  }
  return result;
}
Case spread_case(const Spec& s) { return move_case(s, s.n); }
Case combine_case(const Spec& s) { return move_case(s, s.n * s.k); }
Case dot_case(const Spec& s) {
  return {s.name,
          {{DType::f32, {s.n * s.k, s.d}}, {DType::f32, {s.n, s.d}}, {DType::i32, {s.n, s.k}}},
          {},
          s.slow};
}
template <Case (*make)(const Spec&)>
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}
template <Case (*make)(const Spec&)>
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return make({"random", rng.extent(100), rng.integer(1, 9), rng.extent(150), rng.flip()});
}

Tensor move(const char* op, Tensor rows, Tensor slot, Tensor weight) {
  if (!weight) return rows.builder->call1(op, {rows, slot});
  return rows.builder->call1(op, {rows, slot, weight}, {{"weighted", true}});
}

}  // namespace

Tensor moe_dispatch(Tensor x, Tensor slot, Tensor weight) { return move("moe_dispatch", x, slot, weight); }
Tensor moe_combine(Tensor y, Tensor slot, Tensor weight) { return move("moe_combine", y, slot, weight); }
Tensor row_dot(Tensor y, Tensor x, Tensor slot) { return y.builder->call1("row_dot", {y, x, slot}); }

namespace row_groups_parts {

void add_moves(Catalog& catalog) {
  catalog.add(Contract{.name = "moe_dispatch",
                       .infer = infer_spread,
                       .flops = flops_spread,
                       .bytes = bytes_once,
                       .reference = reference_spread,
                       .low_precision = low_precision_move,
                       .gradient = gradient_spread,
                       .partition = partition_move,
                       .tolerance = tolerance_spread,
                       .cases = cases<spread_case>,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case<spread_case>});
  catalog.add(Contract{.name = "moe_combine",
                       .infer = infer_combine,
                       .flops = flops_gather,
                       .bytes = bytes_once,
                       .reference = reference_combine,
                       .low_precision = low_precision_move,
                       .gradient = gradient_combine,
                       .partition = partition_move,
                       .tolerance = tolerance_combine,
                       .cases = cases<combine_case>,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case<combine_case>});
  catalog.add(Contract{.name = "row_dot",
                       .infer = infer_dot,
                       .flops = flops_gather,
                       .bytes = bytes_once,
                       .reference = reference_dot,
                       .low_precision = low_precision_dot,
                       .gradient = gradient_dot,
                       .partition = partition_dot,
                       .tolerance = tolerance_dot,
                       .cases = cases<dot_case>,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case<dot_case>});
}

}  // namespace row_groups_parts
}  // namespace meshloom::kernels
