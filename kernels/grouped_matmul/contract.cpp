#include <utility>

#include "kernels/cast/cast.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rules.h"
#include "kernels/grouped_matmul/parts.h"

namespace meshloom::kernels {
namespace {

// The number of groups that `offsets` describes.
std::int64_t check_offsets(const Rules& rules, int input) {
  rules.dtype(input, DType::i32);
  rules.rank(input, 1, 1);
  rules.require(rules[input].dim(0) >= 2, "offsets must describe a group", to_string(rules[input]));
  return rules[input].dim(0) - 1;
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("grouped_matmul", inputs, attrs);
  rules.attributes({}, {"trans_b", "bias", "dtype"});
  std::vector<std::string> names{"x", "w", "offsets"};
  if (rules.flag("bias")) names.push_back("bias");
  rules.inputs(std::move(names));
  rules.floats({0, 1});
  const DType dtype = rules.result_dtype(rules[0].dtype);
  rules.rank(0, 2, 2);
  rules.rank(1, 3, 3);
  const std::int64_t groups = check_offsets(rules, 2), k = rules[0].dim(1);
  const bool trans_b = rules.flag("trans_b");
  const std::int64_t n = rules[1].dim(trans_b ? 1 : 2);
  rules.shape(1, trans_b ? Shape{groups, n, k} : Shape{groups, k, n});
  if (rules.flag("bias")) {
    rules.dtype(3, DType::f32);
    rules.shape(3, {groups, n});
  }
  return {{dtype, {rules[0].dim(0), n}}};
}

std::vector<TensorType> infer_outer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("grouped_outer", inputs, attrs);
  rules.attributes({}, {"dtype"});
  rules.inputs({"a", "b", "offsets"});
  rules.floats({0, 1});
  const DType dtype = rules.result_dtype(rules[0].dtype);
  for (int i : {0, 1}) rules.rank(i, 2, 2);
  rules.shape(1, {rules[0].dim(0), rules[1].dim(1)});
  return {{dtype, {check_offsets(rules, 2), rules[0].dim(1), rules[1].dim(1)}}};
}

std::vector<TensorType> infer_sum(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("grouped_sum", inputs, attrs);
  rules.attributes({});
  rules.inputs({"x", "offsets"});
  rules.floating(0);
  rules.rank(0, 2, 2);
  return {{DType::f32, {check_offsets(rules, 1), rules[0].dim(1)}}};
}

// As if every row had a group.
double flops(const CallView& call) {
  const GroupedMatmulDims d = grouped_matmul_dims(call);
  return 2.0 * static_cast<double>(d.rows) * static_cast<double>(d.n) * static_cast<double>(d.k);
}
double flops_outer(const CallView& call) {
  return 2.0 * static_cast<double>(call.inputs[0].elements()) * static_cast<double>(call.inputs[1].dim(1));
}
double flops_sum(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dy = args.cotangents[0], x = args.inputs[0], w = args.inputs[1], offsets = args.inputs[2];
  if (!dy) return result;
  const bool trans_b = args.call.attrs.flag("trans_b");
  const DType of_w = gradient_dtype(w);
  result[0] = grouped_matmul(dy, w, offsets, {.trans_b = !trans_b, .dtype = gradient_dtype(x)});
  result[1] = trans_b ? grouped_outer(dy, x, offsets, of_w) : grouped_outer(x, dy, offsets, of_w);
  if (result.size() > 3) result[3] = grouped_sum(dy, offsets);
  return result;
}

std::vector<Tensor> gradient_outer(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}, Tensor{}};
  const Tensor a = args.inputs[0], b = args.inputs[1], offsets = args.inputs[2],
               dc = cast(args.cotangents[0], a.dtype());
  return {grouped_matmul(b, dc, offsets, {.trans_b = true, .dtype = gradient_dtype(a)}),
          grouped_matmul(a, dc, offsets, {.dtype = gradient_dtype(b)}), Tensor{}};
}

LowPrecision low_precision(const CallView&) { return {.same = {0, 1}}; }
LowPrecision low_precision_sum(const CallView&) { return {.any = {0}}; }

// Offsets count rows of the whole: only features may be split.
std::string partition(const CallView& call) {
  const GroupedMatmulDims d = grouped_matmul_dims(call);
  const std::string k = d.bias ? "." : "k";  // a bias needs the whole sum
  // The offsets are those of a shard's rows.
  return "r" + k + (d.trans_b ? "{re},en" + k : "{re},e" + k + "n") + ",.{re}" + (d.bias ? ",en" : "") +
         "->rn{re}";
}
std::string partition_outer(const CallView&) { return "rm{re},rn{re},.{re}->emn"; }
std::string partition_sum(const CallView&) { return "rn{re},.{re}->en"; }

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(grouped_matmul_dims(call).k), 8);
}
Tolerance tolerance_rows(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].dim(0)), 8);
}

}  // namespace

GroupedMatmulDims grouped_matmul_dims(const CallView& call) {
  const TensorType& w = call.inputs[1];
  const bool trans_b = call.attrs.flag("trans_b");
  return {w.dim(0), call.inputs[0].dim(0),  w.dim(trans_b ? 1 : 2), w.dim(trans_b ? 2 : 1),
          trans_b,  call.attrs.flag("bias")};
}

Tensor grouped_matmul(Tensor x, Tensor w, Tensor offsets, const GroupedMatmulOptions& options) {
  std::vector<Tensor> inputs{x, w, offsets};
  Attrs attrs;
  if (options.trans_b) attrs.set("trans_b", true);
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  set_result_dtype(attrs, options.dtype, x.dtype());
  return x.builder->call1("grouped_matmul", inputs, std::move(attrs));
}
Tensor grouped_outer(Tensor a, Tensor b, Tensor offsets, std::optional<DType> dtype) {
  Attrs attrs;
  set_result_dtype(attrs, dtype, a.dtype());
  return a.builder->call1("grouped_outer", {a, b, offsets}, std::move(attrs));
}
Tensor grouped_sum(Tensor x, Tensor offsets) { return x.builder->call1("grouped_sum", {x, offsets}); }

void add_grouped_matmul(Catalog& catalog) {
  catalog.add(Contract{.name = "grouped_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = grouped_matmul_parts::reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = grouped_matmul_parts::cases,
                       .in_place = never_in_place,
                       .make_input = grouped_matmul_parts::make_input,
                       .random_case = grouped_matmul_parts::random_case});
  catalog.add(Contract{.name = "grouped_outer",
                       .infer = infer_outer,
                       .flops = flops_outer,
                       .bytes = bytes_once,
                       .reference = grouped_matmul_parts::reference_outer,
                       .low_precision = low_precision,
                       .gradient = gradient_outer,
                       .partition = partition_outer,
                       .tolerance = tolerance_rows,
                       .cases = grouped_matmul_parts::cases_outer,
                       .in_place = never_in_place,
                       .make_input = grouped_matmul_parts::make_input,
                       .random_case = grouped_matmul_parts::random_outer});
  catalog.add(Contract{.name = "grouped_sum",
                       .infer = infer_sum,
                       .flops = flops_sum,
                       .bytes = bytes_once,
                       .reference = grouped_matmul_parts::reference_sum,
                       .low_precision = low_precision_sum,
                       .partition = partition_sum,
                       .tolerance = tolerance_rows,
                       .cases = grouped_matmul_parts::cases_sum,
                       .in_place = never_in_place,
                       .make_input = grouped_matmul_parts::make_input,
                       .random_case = grouped_matmul_parts::random_sum});
}

}  // namespace meshloom::kernels
