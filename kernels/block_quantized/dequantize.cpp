// The contract of block_dequantize.
#include "kernels/block_quantized/parts.h"
#include "kernels/core/rng.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer_dequantize(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("block_dequantize", inputs, attrs);
  rules.attributes({"format", "columns"});
  rules.inputs({"w"});
  rules.rank(0, 2, 3);
  Shape shape = leading(rules[0].shape);
  shape.push_back(block_quantized_parts::require_format(rules, 0));
  return {{DType::f32, shape}};
}

double flops_dequantize(const CallView& call) { return static_cast<double>(call.outputs[0].elements()); }

// Rows follow one another without a gap.
void reference_dequantize(const CallView& call, std::span<const ConstTensorView> inputs,
                          std::span<const TensorView> outputs) {
  block_quantized::dequantize(block_format(call), inputs[0].as<std::uint8_t>(), call.outputs[0].elements(),
                              outputs[0].as<float>());
}

std::string partition_dequantize(const CallView& call) {
  const std::string rows = call.inputs[0].rank() == 3 ? "en." : "n.";
  return rows + "->" + rows;
}

// Of a minimum that is added, which may cancel.
Tolerance tolerance_dequantize(const CallView&) { return sum_tolerance(1); }

std::vector<Case> cases_dequantize() {
  std::vector<Case> result;
  for (const block_quantized::Format& format : block_quantized::formats()) {
    const std::string name(format.name);
    result.push_back(block_quantized_parts::weights_case(name, name, {7}, 3 * format.elements, false));
    result.push_back(
        block_quantized_parts::weights_case(name + "-experts", name, {3, 5}, format.elements, false));
  }
  result.push_back(block_quantized_parts::weights_case("one", "q8_0", {1}, 32, false));
  result.push_back(block_quantized_parts::weights_case("rows", "q4_0", {131}, 64, false));
  result.push_back(block_quantized_parts::weights_case("smollm2-ffn-q8_0", "q8_0", {1536}, 576, true));
  result.push_back(block_quantized_parts::weights_case("qwen3-30b-up-q4_k", "q4_k", {128, 768}, 2048, true));
  return result;
}

Case random_case_dequantize(const CaseSeed& seed) {
  Rng rng(seed);
  Shape rows{rng.extent(90)};
  if (rng.flip()) rows.insert(rows.begin(), rng.integer(1, 5));
  const std::string format = block_quantized_parts::random_format(seed.seed);
  return block_quantized_parts::weights_case(
      "random", format, rows, block_quantized::find_format(format)->elements * rng.integer(1, 5), false);
}

void make_input_dequantize(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  block_quantized_parts::make_weights(block_format(call), mix(seed, 0), into);
}

}  // namespace

Tensor block_dequantize(Tensor w, const BlockQuantizedOptions& options) {
  return w.builder->call1("block_dequantize", {w},
                          {{"format", options.format}, {"columns", options.columns}});
}

Contract block_quantized_parts::dequantize_contract() {
  return {.name = "block_dequantize",
          .infer = infer_dequantize,
          .flops = flops_dequantize,
          .bytes = bytes_once,
          .reference = reference_dequantize,
          .partition = partition_dequantize,
          .tolerance = tolerance_dequantize,
          .cases = cases_dequantize,
          .in_place = never_in_place,
          .make_input = make_input_dequantize,
          .random_case = random_case_dequantize};
}

}  // namespace meshloom::kernels
