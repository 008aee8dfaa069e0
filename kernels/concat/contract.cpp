#include <algorithm>
#include <utility>

#include "kernels/cast/cast.h"
#include "kernels/concat/concat.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer_join(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("concat", inputs, attrs);
  rules.inputs({"a", "b"});
  rules.attributes({});
  rules.floats({0, 1});
  rules.rank(0, 2, 2);
  rules.rank(1, 2, 2);
  rules.require(rules[0].dim(0) % rules[1].dim(0) == 0, "a must have a whole multiple of b's rows",
                std::to_string(rules[0].dim(0)) + " and " + std::to_string(rules[1].dim(0)));
  return {{rules[0].dtype, {rules[0].dim(0), rules[0].dim(1) + rules[1].dim(1)}}};
}

std::vector<TensorType> infer_take(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("slice_features", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"begin", "count", "group"});
  rules.floating(0);
  rules.rank(0, 2, 2);
  const std::int64_t begin = rules.integer("begin"), count = rules.integer("count"),
                     group = rules.integer("group");
  rules.require(begin >= 0 && count > 0 && begin + count <= rules[0].dim(1),
                "begin and count must lie within " + std::to_string(rules[0].dim(1)) + " features",
                std::to_string(begin) + " and " + std::to_string(count));
  rules.require(group > 0 && rules[0].dim(0) % group == 0, "group must divide the rows",
                std::to_string(group));
  return {{rules[0].dtype, {rules[0].dim(0) / group, count}}};
}

double flops_take(const CallView& call) {
  return static_cast<double>(call.outputs[0].elements()) *
         static_cast<double>(call.attrs.integer("group") - 1);
}

void reference_join(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), a = call.inputs[0].dim(1), b = call.inputs[1].dim(1);
  const std::int64_t group = rows / call.inputs[1].dim(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* y = outputs[0].as<float>() + r * (a + b);
    std::copy_n(inputs[0].as<float>() + r * a, a, y);
    std::copy_n(inputs[1].as<float>() + r / group * b, b, y + a);
  }
}

void reference_take(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t begin = call.attrs.integer("begin"), group = call.attrs.integer("group");
  const std::int64_t width = call.inputs[0].dim(1), rows = call.outputs[0].dim(0),
                     count = call.outputs[0].dim(1);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (std::int64_t g = 0; g < group; ++g)
        sum += inputs[0].as<float>()[(r * group + g) * width + begin + i];
      outputs[0].as<float>()[r * count + i] = static_cast<float>(sum);
    }
}

std::vector<Tensor> gradient_join(const GradientArgs& args) {
  const Tensor dy = args.cotangents[0];
  if (!dy) return {Tensor{}, Tensor{}};
  const std::int64_t a = args.inputs[0].dim(1), b = args.inputs[1].dim(1);
  return {slice_features(dy, 0, a), slice_features(dy, a, b, args.inputs[0].dim(0) / args.inputs[1].dim(0))};
}

// Zeros on both sides; the rows of a group all get the same.
std::vector<Tensor> gradient_take(const GradientArgs& args) {
  const Tensor dy = args.cotangents[0];
  if (!dy) return {Tensor{}};
  const Tensor x = args.inputs[0];
  const std::int64_t rows = x.dim(0), begin = args.call.attrs.integer("begin"), count = dy.dim(1);
  const std::int64_t rest = x.dim(1) - begin - count;
  const auto zeros = [&](std::int64_t n, std::int64_t width) {
    return cast(constant(args.builder, 0, {n, width}), dy.dtype());
  };
  Tensor dx = dy;
  if (begin > 0) {
    dx = concat(zeros(rows, begin), dy);
  } else if (rows != dy.dim(0)) {
    // A column too many, to repeat the rows by, is cut off again.
    dx = slice_features(concat(zeros(rows, 1), dy), 1, count);
  }
  return {rest > 0 ? concat(dx, zeros(1, rest)) : dx};
}

std::string partition_join(const CallView& call) {
  return call.inputs[0].dim(0) == call.inputs[1].dim(0) ? "r.,r.->r." : "..,..->..";
}
std::string partition_take(const CallView& call) {
  return call.attrs.integer("group") == 1 ? "r.->r." : "..->..";
}

LowPrecision low_precision_concat(const CallView&) { return {.same = {0, 1}}; }
LowPrecision low_precision_slice(const CallView&) { return {.same = {0}}; }

Tolerance exact(const CallView&) { return {}; }
Tolerance tolerance_take(const CallView& call) {
  return call.attrs.integer("group") == 1 ? Tolerance{}
                                          : sum_tolerance(static_cast<double>(call.attrs.integer("group")));
}

Case joined(std::string name, std::int64_t rows, std::int64_t group, std::int64_t a, std::int64_t b) {
  return {std::move(name), {{DType::f32, {rows * group, a}}, {DType::f32, {rows, b}}}, {}};
}
std::vector<Case> cases_join() {
  return {joined("one", 1, 1, 1, 1), joined("rows", 7, 1, 5, 3), joined("heads", 5, 4, 16, 8),
          joined("shared", 1, 9, 3, 17)};
}
Case random_join(const CaseSeed& seed) {
  Rng rng(seed);
  return joined("random", rng.extent(30), rng.integer(1, 6), rng.extent(40), rng.extent(40));
}

Case taken(std::string name, std::int64_t rows, std::int64_t group, std::int64_t width, std::int64_t begin,
           std::int64_t count) {
  return {std::move(name),
          {{DType::f32, {rows * group, width}}},
          {{"begin", begin}, {"count", count}, {"group", group}}};
}
std::vector<Case> cases_take() {
  return {taken("all", 3, 1, 5, 0, 5),     taken("front", 7, 1, 9, 0, 4),  taken("back", 7, 1, 9, 4, 5),
          taken("heads", 5, 4, 24, 16, 8), taken("groups", 3, 6, 7, 0, 7), taken("middle", 2, 3, 9, 2, 4)};
}
Case random_take(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t width = rng.extent(40), begin = rng.integer(0, width - 1);
  return taken("random", rng.extent(30), rng.integer(1, 6), width, begin, rng.integer(1, width - begin));
}

}  // namespace

Tensor concat(Tensor a, Tensor b) { return a.builder->call1("concat", {a, b}); }

Tensor slice_features(Tensor x, std::int64_t begin, std::int64_t count, std::int64_t group) {
  return x.builder->call1("slice_features", {x}, {{"begin", begin}, {"count", count}, {"group", group}});
}

void add_concat(Catalog& catalog) {
  catalog.add(Contract{.name = "concat",
                       .infer = infer_join,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_join,
                       .low_precision = low_precision_concat,
                       .gradient = gradient_join,
                       .partition = partition_join,
                       .tolerance = exact,
                       .cases = cases_join,
                       .in_place = never_in_place,
                       .random_case = random_join});
  catalog.add(Contract{.name = "slice_features",
                       .infer = infer_take,
                       .flops = flops_take,
                       .bytes = bytes_once,
                       .reference = reference_take,
                       .low_precision = low_precision_slice,
                       .gradient = gradient_take,
                       .partition = partition_take,
                       .tolerance = tolerance_take,
                       .cases = cases_take,
                       .in_place = never_in_place,
                       .random_case = random_take});
}

}  // namespace meshloom::kernels
