// The contract of block_quantized_matmul.
#include <utility>

#include "kernels/block_quantized/parts.h"
#include "kernels/cast/cast.h"
#include "kernels/core/catalog.h"
#include "kernels/core/epilogue.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("block_quantized_matmul", inputs, attrs);
  rules.attributes({"format", "columns"}, {"activations", "bias", "residual"});
  std::vector<std::string> names{"x", "w"};
  if (rules.flag("bias")) names.push_back("bias");
  if (rules.flag("residual")) names.push_back("residual");
  rules.inputs(std::move(names));
  rules.floating(0);
  rules.rank(0, 2, 2);
  rules.rank(1, 2, 2);
  const std::int64_t columns = block_quantized_parts::require_format(rules, 1), n = rules[1].dim(0);
  if (attrs.has("activations")) {
    const std::string activations = rules.text("activations");
    rules.require(activations == "float" || activations == "int8", "activations must be float or int8",
                  "'" + activations + "'");
  }
  rules.shape(0, {rules[0].dim(0), columns});
  return infer_with_epilogue(rules, 2, n);
}

double flops(const CallView& call) {
  const BlockQuantizedDims d = block_quantized_dims(call);
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dy = args.cotangents[0], x = args.inputs[0];
  if (!dy) return result;
  const Attrs& attrs = args.call.attrs;
  const Tensor w =
      block_dequantize(args.inputs[1], {.format = attrs.text("format"), .columns = attrs.integer("columns")});
  result[0] = matmul(dy, cast(w, dy.dtype()), {.dtype = gradient_dtype(x)});
  std::size_t next = 2;
  if (attrs.flag("bias")) result[next++] = reduce_sum(dy, 1);
  if (attrs.flag("residual")) result[next++] = dy;
  return result;
}

// The bytes of a row are no multiple of its columns, nor the other way round, so that a rule cannot name both: K is whole.
std::string partition(const CallView& call) {
  return std::string("m.,n.") + (call.attrs.flag("bias") ? ",n" : "") +
         (call.attrs.flag("residual") ? ",mn" : "") + "->mn";
}

LowPrecision low_precision(const CallView& call) {
  const int residual = block_quantized_dims(call).residual;
  if (residual < 0) return {.same = {0}};
  return {.same = {0, residual}};
}

std::vector<std::pair<int, int>> in_place(const CallView& call) {
  return residual_in_place(block_quantized_dims(call).residual);
}

Tolerance tolerance(const CallView& call) {
  const BlockQuantizedDims d = block_quantized_dims(call);
  return quantized_weights_tolerance(static_cast<double>(d.k), d.int8 ? DType::f32 : call.inputs[0].dtype);
}

}  // namespace

const block_quantized::Format& block_format(const CallView& call) {
  return *block_quantized::find_format(call.attrs.text("format"));
}

BlockQuantizedDims block_quantized_dims(const CallView& call) {
  const bool bias = call.attrs.flag("bias");
  return {&block_format(call),
          call.inputs[0].dim(0),
          call.inputs[1].dim(0),
          call.attrs.integer("columns"),
          call.attrs.has("activations") && call.attrs.text("activations") == "int8",
          bias ? 2 : -1,
          !call.attrs.flag("residual") ? -1
          : bias                       ? 3
                                       : 2};
}

Tensor block_quantized_matmul(Tensor x, Tensor w, const BlockQuantizedOptions& options) {
  std::vector<Tensor> inputs{x, w};
  Attrs attrs{{"format", options.format}, {"columns", options.columns}};
  if (options.activations != "float") attrs.set("activations", options.activations);
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  if (options.residual) {
    attrs.set("residual", true);
    inputs.push_back(options.residual);
  }
  return x.builder->call1("block_quantized_matmul", inputs, std::move(attrs));
}

std::int64_t block_quantized_parts::require_format(const Rules& rules, int w) {
  rules.dtype(w, DType::u8);
  const std::string name = rules.text("format");
  const block_quantized::Format* format = block_quantized::find_format(name);
  rules.require(format != nullptr, "format must be one of " + block_quantized::format_names(),
                "'" + name + "'");
  const std::int64_t columns = rules.integer("columns");
  rules.require(
      columns >= 1 && columns % format->elements == 0,
      "columns must be a multiple of " + std::to_string(format->elements) + ", the block of " + name,
      std::to_string(columns));
  Shape shape = leading(rules[w].shape);
  shape.push_back(block_quantized::row_bytes(*format, columns));
  rules.shape(w, shape);
  return columns;
}

void add_block_quantized(Catalog& catalog) {
  catalog.add(block_quantized_parts::dequantize_contract());
  catalog.add(block_quantized_parts::embedding_contract());
  catalog.add(Contract{.name = "block_quantized_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = block_quantized_parts::reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = block_quantized_parts::cases,
                       .in_place = in_place,
                       .make_input = block_quantized_parts::make_input,
                       .random_case = block_quantized_parts::random_case});
}

}  // namespace meshloom::kernels
