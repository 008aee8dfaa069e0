#include <utility>

#include "hal/error.h"
#include "kernels/cast/cast.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rules.h"
#include "kernels/int8_matmul/parts.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels {
namespace {

constexpr std::int64_t kDeepest = 2147483647 / (127 * 127);

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("int8_matmul", inputs, attrs);
  rules.attributes({}, {"bias", "through", "dtype"});
  std::vector<std::string> names{"a", "a_scales", "b", "b_scales"};
  if (rules.flag("bias")) names.push_back("bias");
  if (rules.flag("through")) names.insert(names.end(), {"x", "w"});
  rules.inputs(std::move(names));
  for (int side : {0, 2}) {
    rules.dtype(side, DType::i8);
    rules.rank(side, 2, 2);
    rules.dtype(side + 1, DType::f32);
    rules.shape(side + 1, {rules[side].dim(0)});
  }
  const std::int64_t m = rules[0].dim(0), n = rules[2].dim(0), k = rules[0].dim(1);
  rules.shape(2, {n, k});
  rules.require(k <= kDeepest, "sums of 32 bits hold K of at most " + std::to_string(kDeepest),
                std::to_string(k));
  int next = 4;
  if (rules.flag("bias")) {
    rules.dtype(next, DType::f32);
    rules.shape(next++, {n});
  }
  if (rules.flag("through")) {
    rules.floating(next);
    rules.shape(next++, {m, k});
    rules.floating(next);
    rules.shape(next, {n, k});
  }
  return {{rules.result_dtype(), {m, n}}};
}

std::vector<TensorType> infer_quantize(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("quantize_rows", inputs, attrs);
  rules.attributes({});
  rules.inputs({"x"});
  rules.floating(0);
  rules.rank(0, 2, 2);
  return {{DType::i8, rules[0].shape}, {DType::f32, {rules[0].dim(0)}}};
}

std::vector<TensorType> infer_dequantize(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("dequantize_rows", inputs, attrs);
  rules.attributes({});
  rules.inputs({"q", "scales"});
  rules.dtype(0, DType::i8);
  rules.rank(0, 2, 2);
  rules.dtype(1, DType::f32);
  rules.shape(1, {rules[0].dim(0)});
  return {{DType::f32, rules[0].shape}};
}

double flops(const CallView& call) {
  const Int8MatmulDims d = int8_matmul_dims(call);
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

// Without x and w.
double bytes(const CallView& call) {
  double sum = static_cast<double>(call.outputs[0].bytes());
  for (std::size_t i = 0; i < (call.attrs.flag("bias") ? 5u : 4u); ++i)
    sum += static_cast<double>(call.inputs[i].bytes());
  return sum;
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dc = args.cotangents[0];
  if (!dc) return result;
  std::size_t next = 4;
  if (args.call.attrs.flag("bias")) result[next++] = reduce_sum(dc, 1);
  if (!args.call.attrs.flag("through")) return result;
  const Tensor x = args.inputs[next], w = args.inputs[next + 1];
  result[next] = matmul(dc, cast(w, dc.dtype()), {.dtype = gradient_dtype(x)});
  result[next + 1] = matmul(dc, cast(x, dc.dtype()), {.trans_a = true, .dtype = gradient_dtype(w)});
  return result;
}

std::string partition(const CallView& call) {
  std::string text = "m.,m,n.,n";
  if (call.attrs.flag("bias")) text += ",n";
  if (call.attrs.flag("through")) text += ",m.,n.";
  return text + "->mn";
}
std::string partition_quantize(const CallView&) { return "m.->m.,m"; }
std::string partition_dequantize(const CallView&) { return "mk,m->mk"; }

LowPrecision low_precision(const CallView& call) {
  if (!call.attrs.flag("through")) return {};
  const int x = call.attrs.flag("bias") ? 5 : 4;
  return {.any = {x, x + 1}, .attribute = true};
}
LowPrecision low_precision_quantize(const CallView&) { return {.any = {0}}; }

// The sum is exact: three roundings, and the bias's.
Tolerance tolerance(const CallView&) { return sum_tolerance(4, 4); }
// Of the reciprocal alone.
Tolerance tolerance_quantize(const CallView&) { return {.rel = 0x1p-21}; }
Tolerance exact(const CallView&) { return {}; }

}  // namespace

Int8MatmulDims int8_matmul_dims(const CallView& call) {
  return {call.inputs[0].dim(0), call.inputs[2].dim(0), call.inputs[0].dim(1),
          call.attrs.flag("bias") ? 4 : -1};
}

QuantizedRows quantize_rows(Tensor x) {
  const std::vector<Tensor> outputs = x.builder->call("quantize_rows", {x});
  return {outputs[0], outputs[1]};
}

Tensor dequantize_rows(const QuantizedRows& rows) {
  return rows.values.builder->call1("dequantize_rows", {rows.values, rows.scales});
}

Tensor int8_matmul(const QuantizedRows& a, const QuantizedRows& b, const Int8Options& options) {
  std::vector<Tensor> inputs{a.values, a.scales, b.values, b.scales};
  Attrs attrs;
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  if (options.x && options.w) {
    attrs.set("through", true);
    inputs.insert(inputs.end(), {options.x, options.w});
  }
  return a.values.builder->call1("int8_matmul", inputs, std::move(attrs));
}

void add_int8_matmul(Catalog& catalog) {
  catalog.add(Contract{.name = "quantize_rows",
                       .infer = infer_quantize,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = int8_matmul_parts::reference_quantize,
                       .low_precision = low_precision_quantize,
                       .partition = partition_quantize,
                       .tolerance = tolerance_quantize,
                       .cases = int8_matmul_parts::cases_quantize,
                       .in_place = never_in_place,
                       .make_input = int8_matmul_parts::make_rows,
                       .random_case = int8_matmul_parts::random_quantize});
  catalog.add(Contract{.name = "dequantize_rows",
                       .infer = infer_dequantize,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = int8_matmul_parts::reference_dequantize,
                       .partition = partition_dequantize,
                       .tolerance = exact,
                       .cases = int8_matmul_parts::cases_dequantize,
                       .in_place = never_in_place,
                       .make_input = int8_matmul_parts::make_codes,
                       .random_case = int8_matmul_parts::random_dequantize});
  catalog.add(Contract{.name = "int8_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes,
                       .reference = int8_matmul_parts::reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = int8_matmul_parts::cases,
                       .in_place = never_in_place,
                       .make_input = int8_matmul_parts::make_input,
                       .random_case = int8_matmul_parts::random_case});
}

}  // namespace meshloom::kernels
