// The contract of block_quantized_embedding.
#include <algorithm>

#include "kernels/block_quantized/parts.h"
#include "kernels/core/rng.h"
#include "kernels/embedding/embedding.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer_embedding(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("block_quantized_embedding", inputs, attrs);
  rules.attributes({"format", "columns"}, {"dtype", "first"});
  rules.inputs({"w", "ids"});
  rules.rank(0, 2, 2);
  rules.dtype(1, DType::i32);
  rules.rank(1, 1, 7);
  if (attrs.has("first"))
    rules.require(rules.integer("first") >= 0, "first must not be negative",
                  std::to_string(rules.integer("first")));
  Shape shape = rules[1].shape;
  shape.push_back(block_quantized_parts::require_format(rules, 0));
  return {{rules.result_dtype(), shape}};
}

// Only the rows that are looked up are read.
double bytes_embedding(const CallView& call) {
  return static_cast<double>(call.inputs[1].bytes() + call.inputs[1].elements() * call.inputs[0].dim(1) +
                             call.outputs[0].bytes());
}

void reference_embedding(const CallView& call, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), row = call.inputs[0].dim(1),
                     columns = call.outputs[0].dim(-1);
  for (std::int64_t i = 0; i < call.inputs[1].elements(); ++i) {
    const std::int64_t id = inputs[1].as<std::int32_t>()[i] - embedding_first(call);
    float* y = outputs[0].as<float>() + i * columns;
    if (id < 0 || id >= rows)
      std::fill_n(y, columns, 0.0f);
    else
      block_quantized::dequantize(block_format(call), inputs[0].as<std::uint8_t>() + id * row, columns, y);
  }
}

LowPrecision low_precision_embedding(const CallView&) { return {.attribute = true, .always = true}; }

std::string partition_embedding(const CallView& call) {
  const std::string ids = letters(call.inputs[1].rank());
  return "v.," + ids + "->" + ids + ".";
}

std::vector<Tensor> local_embedding(const LocalArgs& args) {
  Attrs attrs = args.attrs;
  if (const auto cut = args.cuts.find('v'); cut != args.cuts.end())
    attrs.set("first", embedding_first(args.whole) + cut->second.first);
  return args.builder.call(args.whole.op, args.inputs, attrs);
}

Tolerance tolerance_embedding(const CallView&) { return sum_tolerance(1); }

struct Lookup {
  std::string name, format;
  std::int64_t rows, columns;
  Shape ids;
  std::int64_t first = 0;
  bool slow = false;
};
Case lookup(const Lookup& s) {
  Case result = block_quantized_parts::weights_case(s.name, s.format, {s.rows}, s.columns, s.slow);
  result.inputs.push_back({DType::i32, s.ids});
  if (s.first) result.attrs.set("first", s.first);
  return result;
}

std::vector<Case> cases_embedding() {
  std::vector<Case> result{lookup({"one", "q8_0", 1, 32, {1}}), lookup({"batch", "q4_0", 97, 96, {3, 19}}),
                           lookup({"part", "q8_0", 23, 64, {3, 17}, 11}),
                           lookup({"smollm2-q8_0", "q8_0", 49152, 576, {1, 128}, 0, true})};
  for (const block_quantized::Format& format : block_quantized::formats())
    result.push_back(
        lookup({std::string(format.name), std::string(format.name), 17, 2 * format.elements, {9}}));
  return result;
}

Case random_case_embedding(const CaseSeed& seed) {
  Rng rng(seed);
  const std::string format = block_quantized_parts::random_format(seed.seed);
  Lookup spec{"random",
              format,
              rng.extent(100),
              block_quantized::find_format(format)->elements * rng.integer(1, 5),
              {rng.extent(70)}};
  if (rng.flip()) spec.ids = {rng.integer(1, 4), rng.extent(20)};
  if (rng.flip(0.3)) spec.first = rng.integer(1, 100);
  return lookup(spec);
}

// Mostly valid ids, some outside on both sides.
void make_input_embedding(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 0) return block_quantized_parts::make_weights(block_format(call), mix(seed, 0), into);
  const std::int64_t first = embedding_first(call), end = first + call.inputs[0].dim(0);
  fill_integers(into, mix(seed, 1), first, end - 1);
  for (std::int64_t i = 3; i < into.type.elements(); i += 7)
    into.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % 2 == 0 ? first - 1 : end);
}

}  // namespace

Tensor block_quantized_embedding(Tensor w, Tensor ids, const BlockQuantizedOptions& options) {
  return w.builder->call1("block_quantized_embedding", {w, ids},
                          {{"format", options.format}, {"columns", options.columns}});
}

Contract block_quantized_parts::embedding_contract() {
  return {.name = "block_quantized_embedding",
          .infer = infer_embedding,
          .flops = no_flops,
          .bytes = bytes_embedding,
          .reference = reference_embedding,
          .low_precision = low_precision_embedding,
          .partition = partition_embedding,
          .local = local_embedding,
          .tolerance = tolerance_embedding,
          .cases = cases_embedding,
          .in_place = never_in_place,
          .make_input = make_input_embedding,
          .random_case = random_case_embedding};
}

}  // namespace meshloom::kernels
