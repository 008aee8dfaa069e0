#include <algorithm>
#include <cstring>
#include <utility>

#include "hal/error.h"
#include "hal/math.h"
#include "kernels/cast/cast.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/split/split.h"

namespace meshloom::kernels {
namespace {

constexpr std::int64_t kMaxParts = 4096;

void require_known(const Rules& rules, DType dtype) {
  rules.require(hal::is_float(dtype) || dtype == DType::i32, "x must be of floats or i32",
                std::string(hal::to_string(dtype)));
}

std::vector<TensorType> infer_split(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("split", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"rows"});
  rules.rank(0, 1, 8);
  require_known(rules, rules[0].dtype);
  const std::int64_t rows = rules.integer("rows"), all = rules[0].dim(0);
  rules.require(rows > 0, "rows must be positive", std::to_string(rows));
  rules.require((all - 1) / rows < kMaxParts, "makes at most " + std::to_string(kMaxParts) + " parts",
                std::to_string(hal::ceil_div(all, rows)));
  std::vector<TensorType> parts;
  for (std::int64_t at = 0; at < all; at += rows) {
    parts.push_back(rules[0]);
    parts.back().shape[0] = std::min(rows, all - at);
  }
  return parts;
}

std::vector<TensorType> infer_join(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("concat_rows", inputs, attrs);
  rules.attributes({});
  rules.require(!inputs.empty(), "needs at least one input", "none");
  rules.rank(0, 1, 8);
  require_known(rules, inputs[0].dtype);
  TensorType whole = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    TensorType like = inputs[i];
    const std::int64_t rows = like.shape.empty() ? 0 : like.shape[0];
    if (rows > 0) like.shape[0] = inputs[0].shape[0];
    rules.require(like == inputs[0] &&
                      (rows == inputs[0].dim(0) || (i + 1 == inputs.size() && rows < inputs[0].dim(0))),
                  "the parts must be alike, but that the last may have fewer rows",
                  to_string(inputs[0]) + " and " + to_string(inputs[i]));
    whole.shape[0] += rows;
  }
  return {whole};
}

void reference_split(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  const std::byte* from = inputs[0].data;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    std::memcpy(outputs[i].data, from, static_cast<std::size_t>(call.outputs[i].bytes()));
    from += call.outputs[i].bytes();
  }
}

void reference_join(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  std::byte* to = outputs[0].data;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    std::memcpy(to, inputs[i].data, static_cast<std::size_t>(call.inputs[i].bytes()));
    to += call.inputs[i].bytes();
  }
}

std::vector<Tensor> gradient_split(const GradientArgs& args) {
  std::vector<Tensor> parts = args.cotangents;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!parts[i])
      parts[i] = cast(constant(args.builder, 0, args.outputs[i].shape()), args.outputs[i].dtype());
  return {concat_rows(parts)};
}

std::vector<Tensor> gradient_join(const GradientArgs& args) {
  if (!args.cotangents[0]) return std::vector<Tensor>(args.inputs.size());
  return split(args.cotangents[0], args.inputs[0].dim(0));
}

// Slices of slices would be of other rows: the first dimension stays whole.
std::string partition(const CallView& call) {
  const auto list = [](const std::vector<TensorType>& types) {
    std::string text;
    for (const TensorType& type : types) {
      std::string one = letters(type.rank());
      one[0] = '.';
      text += (text.empty() ? "" : ",") + one;
    }
    return text;
  };
  return list(call.inputs) + "->" + list(call.outputs);
}

LowPrecision low_precision(const CallView& call) {
  LowPrecision result;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) result.same.push_back(static_cast<int>(i));
  return result;
}

Tolerance exact(const CallView&) { return {}; }

Case cut(std::string name, Shape shape, std::int64_t rows, DType dtype = DType::f32) {
  return {std::move(name), {{dtype, std::move(shape)}}, {{"rows", rows}}};
}
std::vector<Case> cases_split() {
  return {cut("whole", {5, 3}, 5),    cut("longer", {5, 3}, 9), cut("even", {12, 7}, 4),
          cut("tail", {13, 5}, 4),    cut("vector", {37}, 8),   cut("integers", {29}, 6, DType::i32),
          cut("single", {3, 2, 5}, 1)};
}
Case random_split(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t n = rng.extent(60);
  Shape shape{n};
  if (rng.flip()) shape.push_back(rng.extent(40));
  return cut("random", shape, rng.integer(1, n + 1), rng.flip(0.8) ? DType::f32 : DType::i32);
}

Case pieced(const Case& split) { return {split.name, infer_split(split.inputs, split.attrs), {}}; }
std::vector<Case> cases_join() {
  std::vector<Case> cases;
  for (const Case& split : cases_split()) cases.push_back(pieced(split));
  return cases;
}
Case random_join(const CaseSeed& seed) { return pieced(random_split(seed)); }

}  // namespace

std::vector<Tensor> split(Tensor x, std::int64_t rows) {
  return x.builder->call("split", {x}, {{"rows", rows}});
}

Tensor concat_rows(const std::vector<Tensor>& parts) {
  if (parts.empty()) throw hal::Error("concat_rows", "needs at least one input", "none");
  return parts.front().builder->call1("concat_rows", parts);
}

void add_split(Catalog& catalog) {
  catalog.add(Contract{.name = "split",
                       .infer = infer_split,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_split,
                       .low_precision = low_precision,
                       .gradient = gradient_split,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases_split,
                       .in_place = never_in_place,
                       .random_case = random_split});
  catalog.add(Contract{.name = "concat_rows",
                       .infer = infer_join,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_join,
                       .low_precision = low_precision,
                       .gradient = gradient_join,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases_join,
                       .in_place = never_in_place,
                       .random_case = random_join});
}

}  // namespace meshloom::kernels
