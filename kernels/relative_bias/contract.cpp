#include <cmath>
#include <cstring>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/expression.h"
#include "kernels/relative_bias/relative_bias.h"

namespace meshloom::kernels {
namespace {

constexpr std::int64_t kMaxPositions = std::int64_t{1} << 23;  // so that f32 tells their distances apart

void check_row(const Rules& rules) {
  const std::size_t roots = rules.expression("row", 1)->roots.size();
  rules.require(roots == 1, "the expression must have one root", std::to_string(roots));
}
void check_extent(const Rules& rules, std::int64_t extent) {
  rules.require(extent > 0 && extent < kMaxPositions, "queries and keys must be positive and below 2^23",
                std::to_string(extent));
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("relative_bias", inputs, attrs);
  rules.attributes({"queries", "keys", "row"});
  rules.inputs({"table"});
  rules.dtype(0, DType::f32);
  rules.rank(0, 2, 2);
  check_row(rules);
  const std::int64_t queries = rules.integer("queries"), keys = rules.integer("keys");
  for (const std::int64_t extent : {queries, keys}) check_extent(rules, extent);
  return {{DType::f32, {1, rules[0].dim(1), queries, keys}}};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("relative_bias_grad", inputs, attrs);
  rules.attributes({"rows", "row"});
  rules.inputs({"dy"});
  rules.dtype(0, DType::f32);
  rules.rank(0, 4, 4);
  rules.shape(0, {1, rules[0].dim(1), rules[0].dim(2), rules[0].dim(3)});
  check_row(rules);
  for (const int dim : {2, 3}) check_extent(rules, rules[0].dim(dim));
  const std::int64_t rows = rules.integer("rows");
  rules.require(rows > 0, "rows must be positive", std::to_string(rows));
  return {{DType::f32, {rows, rules[0].dim(1)}}};
}

double flops_grad(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }

// The table's row of every distance; -1 where there is none.
std::vector<std::int64_t> rows_of(const CallView& call) {
  const RelativeBiasDims d = relative_bias_dims(call);
  const Expression expression = parse_expression(call.attrs.text("row"));
  std::vector<std::int64_t> rows;
  for (std::int64_t n = 0; n < d.distances(); ++n) {
    const auto distance = static_cast<double>(n - (d.t - 1));
    double row = 0;
    evaluate(expression, &distance, &row);
    rows.push_back(row >= 0 && row < static_cast<double>(d.rows) ? static_cast<std::int64_t>(std::floor(row))
                                                                 : -1);
  }
  return rows;
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const RelativeBiasDims d = relative_bias_dims(call);
  const std::vector<std::int64_t> rows = rows_of(call);
  float* y = outputs[0].as<float>();
  for (std::int64_t h = 0; h < d.h; ++h)
    for (std::int64_t i = 0; i < d.s; ++i)
      for (std::int64_t j = 0; j < d.t; ++j) {
        const std::int64_t row = rows[static_cast<std::size_t>(j - i + d.s - 1)];
        *y++ = row < 0 ? 0 : inputs[0].as<float>()[row * d.h + h];
      }
}

void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const RelativeBiasDims d = relative_bias_dims(call);
  const std::vector<std::int64_t> rows = rows_of(call);
  std::vector<double> sums(static_cast<std::size_t>(d.rows * d.h), 0.0);
  const float* dy = inputs[0].as<float>();
  for (std::int64_t h = 0; h < d.h; ++h)
    for (std::int64_t i = 0; i < d.s; ++i)
      for (std::int64_t j = 0; j < d.t; ++j, ++dy) {
        const std::int64_t row = rows[static_cast<std::size_t>(j - i + d.s - 1)];
        if (row >= 0) sums[static_cast<std::size_t>(row * d.h + h)] += *dy;
      }
  for (std::size_t k = 0; k < sums.size(); ++k) outputs[0].as<float>()[k] = static_cast<float>(sums[k]);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return {args.builder.call1("relative_bias_grad", {args.cotangents[0]},
                             {{"rows", args.inputs[0].dim(0)}, {"row", args.call.attrs.text("row")}})};
}

std::string partition(const CallView&) { return ".h->.h.."; }
std::string partition_grad(const CallView&) { return ".h..->.h"; }

Tolerance tolerance(const CallView&) { return {}; }
Tolerance tolerance_grad(const CallView& call) {
  const RelativeBiasDims d = relative_bias_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.s) * static_cast<double>(d.t));
  result.scale = 1;
  return result;
}

struct Spec {
  std::string name;
  std::int64_t rows, h, s, t;
  std::string row;
  bool slow = false;
};
// Few of them: drivers compile each.
constexpr char kBuckets[] =
    "8 * (x0 > 0) + min(abs(x0), 4) + (abs(x0) > 5) + (abs(x0) > 10) + (abs(x0) > 20)",
               kClipped[] = "max(-4, min(4, x0)) + 4", kShifted[] = "x0 + 0.5", kRepeated[] = "x0 % 5";

std::vector<Spec> specs() {
  return {{"one", 1, 1, 1, 1, kRepeated},
          {"clipped", 9, 2, 13, 13, kClipped},
          {"buckets", 16, 3, 37, 37, kBuckets},
          {"more-keys", 16, 2, 5, 70, kBuckets},
          {"fewer-keys", 16, 4, 66, 9, kBuckets},
          {"a-query", 40, 5, 1, 131, kRepeated},
          {"no-such-row", 7, 2, 30, 33, kShifted},
          {"repeated", 5, 3, 129, 65, kRepeated},
          {"context-1024", 32, 12, 1024, 1024, kBuckets, true}};
}
Case forward(const Spec& s) {
  return {s.name, {{DType::f32, {s.rows, s.h}}}, {{"queries", s.s}, {"keys", s.t}, {"row", s.row}}, s.slow};
}
Case backward(const Spec& s) {
  return {s.name, {{DType::f32, {1, s.h, s.s, s.t}}}, {{"rows", s.rows}, {"row", s.row}}, s.slow};
}
std::vector<Case> all(Case (*make)(const Spec&)) {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}
std::vector<Case> cases() { return all(forward); }
std::vector<Case> cases_grad() { return all(backward); }

Spec random_spec(const CaseSeed& seed) {
  Rng rng(seed);
  const char* const all[] = {kBuckets, kClipped, kShifted, kRepeated};
  return {"random",        rng.extent(40),  rng.integer(1, 6),
          rng.extent(130), rng.extent(130), all[rng.integer(0, 3)]};
}
Case random_case(const CaseSeed& seed) { return forward(random_spec(seed)); }
Case random_grad(const CaseSeed& seed) { return backward(random_spec(seed)); }

}  // namespace

RelativeBiasDims relative_bias_dims(const CallView& call) {
  const bool grad = call.op == "relative_bias_grad";
  const TensorType &table = grad ? call.outputs[0] : call.inputs[0],
                   &bias = grad ? call.inputs[0] : call.outputs[0];
  return {table.dim(0), table.dim(1), bias.dim(2), bias.dim(3)};
}

Tensor relative_bias(Tensor table, const std::string& row, std::int64_t queries, std::int64_t keys) {
  return table.builder->call1("relative_bias", {table}, {{"queries", queries}, {"keys", keys}, {"row", row}});
}

void add_relative_bias(Catalog& catalog) {
  catalog.add(Contract{.name = "relative_bias",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .random_case = random_case});
  catalog.add(Contract{.name = "relative_bias_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes_once,
                       .reference = reference_grad,
                       .partition = partition_grad,
                       .tolerance = tolerance_grad,
                       .cases = cases_grad,
                       .in_place = never_in_place,
                       .random_case = random_grad});
}

}  // namespace meshloom::kernels
