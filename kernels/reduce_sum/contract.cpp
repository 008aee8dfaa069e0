#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels {
namespace {

// Output shape of a reduction that keeps the last `keep` dimensions.
Shape kept(const Shape& shape, std::int64_t keep) {
  if (keep == 0) return {1};
  return {shape.end() - keep, shape.end()};
}

std::vector<TensorType> infer_reduce(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("reduce_sum", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"keep"});
  rules.floating(0);
  rules.rank(0, 1, 8);
  const std::int64_t keep = rules.integer("keep");
  rules.require(keep >= 0 && keep < rules[0].rank(),
                "keep must be at least 0 and less than the rank of " + to_string(rules[0]),
                std::to_string(keep));
  return {{DType::f32, kept(rules[0].shape, keep)}};
}

std::vector<TensorType> infer_square(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("square_sum", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({});
  rules.dtype(0, DType::f32);
  rules.rank(0, 0, 8);
  return {{DType::f32, {1}}};
}

double flops_reduce(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }
double flops_square(const CallView& call) { return 2.0 * static_cast<double>(call.inputs[0].elements()); }

void reference_reduce(const CallView& call, std::span<const ConstTensorView> inputs,
                      std::span<const TensorView> outputs) {
  const std::int64_t columns = call.outputs[0].elements(), rows = call.inputs[0].elements() / columns;
  std::vector<double> sums(static_cast<std::size_t>(columns), 0.0);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      sums[static_cast<std::size_t>(c)] += inputs[0].as<float>()[r * columns + c];
  for (std::int64_t c = 0; c < columns; ++c)
    outputs[0].as<float>()[c] = static_cast<float>(sums[static_cast<std::size_t>(c)]);
}

void reference_square(const CallView& call, std::span<const ConstTensorView> inputs,
                      std::span<const TensorView> outputs) {
  double sum = 0;
  for (std::int64_t i = 0; i < call.inputs[0].elements(); ++i) {
    const double x = inputs[0].as<float>()[i];
    sum += x * x;
  }
  *outputs[0].as<float>() = static_cast<float>(sum);
}

std::vector<Tensor> gradient_reduce(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return elementwise({args.cotangents[0]}, {Expr::input(0)}, args.inputs[0].shape(), args.inputs[0].dtype());
}

std::string partition_reduce(const CallView& call) {
  const std::string x = letters(call.inputs[0].rank());
  const auto keep = static_cast<std::size_t>(call.attrs.integer("keep"));
  return x + "->" + (keep ? x.substr(x.size() - keep) : ".");
}
std::string partition_square(const CallView& call) { return letters(call.inputs[0].rank()) + "->."; }

LowPrecision low_precision(const CallView&) { return {.any = {0}}; }

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].elements() / call.outputs[0].elements()));
}

// Nothing cancels in a sum of squares.
Tolerance tolerance_square(const CallView& call) {
  Tolerance result = tolerance(call);
  result.scale = 0;
  return result;
}

Case reduce(std::string name, Shape shape, std::int64_t keep, bool slow = false) {
  return {std::move(name), {{DType::f32, std::move(shape)}}, {{"keep", keep}}, slow};
}

std::vector<Case> cases_reduce() {
  return {reduce("one", {1}, 0),
          reduce("all", {1031}, 0),
          reduce("all-2d", {37, 29}, 0),
          reduce("columns", {67, 53}, 1),
          reduce("one-row", {1, 45}, 1),
          reduce("one-column", {131, 1}, 1),
          reduce("tall", {2049, 3}, 1),
          reduce("wide", {5, 1025}, 1),
          reduce("bias-3d", {4, 17, 33}, 1),
          reduce("positions", {6, 19, 21}, 2),
          reduce("gpt2-bias", {1024, 3072}, 1, true),
          reduce("tokens", {65536}, 0, true)};
}
Case random_reduce(const CaseSeed& seed) {
  Rng rng(seed);
  Shape shape;
  const std::int64_t rank = rng.of({1, 2, 2, 3});
  for (std::int64_t i = 0; i < rank; ++i)
    shape.push_back(rng.extent(rank == 1 ? 3000 : rank == 2 ? 300 : 40));
  return reduce("random", shape, rng.integer(0, rank - 1));
}

Case square(std::string name, Shape shape, bool slow = false) {
  return {std::move(name), {{DType::f32, std::move(shape)}}, {}, slow};
}
std::vector<Case> cases_square() {
  return {square("one", {1}),
          square("vector", {257}),
          square("matrix", {67, 53}),
          square("cube", {3, 41, 17}),
          square("page", {64, 1024}),
          square("large-tail", {100003}),
          square("ffn", {1536, 576}, true)};
}
Case random_square(const CaseSeed& seed) {
  Rng rng(seed);
  if (rng.flip()) return square("random", {rng.extent(5000)});
  return square("random", {rng.extent(200), rng.extent(200)});
}

}  // namespace

Tensor reduce_sum(Tensor x, std::int64_t keep) {
  return x.builder->call1("reduce_sum", {x}, {{"keep", keep}});
}
Tensor square_sum(Tensor x) { return x.builder->call1("square_sum", {x}); }

void add_reduce_sum(Catalog& catalog) {
  catalog.add(Contract{.name = "reduce_sum",
                       .infer = infer_reduce,
                       .flops = flops_reduce,
                       .bytes = bytes_once,
                       .reference = reference_reduce,
                       .low_precision = low_precision,
                       .gradient = gradient_reduce,
                       .partition = partition_reduce,
                       .tolerance = tolerance,
                       .cases = cases_reduce,
                       .in_place = never_in_place,
                       .random_case = random_reduce});
  catalog.add(Contract{.name = "square_sum",
                       .infer = infer_square,
                       .flops = flops_square,
                       .bytes = bytes_once,
                       .reference = reference_square,
                       .partition = partition_square,
                       .tolerance = tolerance_square,
                       .cases = cases_square,
                       .in_place = never_in_place,
                       .random_case = random_square});
}

}  // namespace meshloom::kernels
