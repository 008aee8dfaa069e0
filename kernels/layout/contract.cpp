#include <algorithm>
#include <cstring>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/layout/layout.h"

namespace meshloom::kernels {
namespace {

constexpr int kMaxPermuteRank = 4;

std::vector<TensorType> infer_reshape(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("reshape", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"shape"});
  const Shape shape = rules.list("shape");
  for (std::int64_t dim : shape)
    rules.require(dim > 0, "every dimension of the shape must be positive", to_string(shape));
  rules.require(elements(shape) == rules[0].elements(),
                "the shape must have as many elements as " + to_string(rules[0]), to_string(shape));
  return {{rules[0].dtype, shape}};
}

std::vector<TensorType> infer_permute(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("permute", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"order"});
  rules.rank(0, 1, kMaxPermuteRank);
  rules.require(hal::size_of(rules[0].dtype) == 4 || hal::is_low_precision(rules[0].dtype),
                "x must be a float or of 4 bytes", to_string(rules[0]));
  const std::vector<std::int64_t> order = rules.list("order");
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool valid = static_cast<int>(order.size()) == rules[0].rank();
  for (std::size_t i = 0; i < sorted.size(); ++i) valid = valid && sorted[i] == static_cast<std::int64_t>(i);
  rules.require(valid, "order must name every dimension of " + to_string(rules[0]) + " once",
                to_string(Shape(order)));
  Shape shape;
  for (std::int64_t axis : order) shape.push_back(rules[0].dim(static_cast<int>(axis)));
  return {{rules[0].dtype, shape}};
}

std::vector<TensorType> infer_stack(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("stack", inputs, attrs);
  rules.attributes({});
  rules.require(!inputs.empty(), "needs at least one input", "none");
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    rules.dtype(i, DType::f32);
    rules.shape(i, {1});
  }
  return {{DType::f32, {static_cast<std::int64_t>(inputs.size())}}};
}

double no_bytes(const CallView&) { return 0; }

void reference_reshape(const CallView& call, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs) {
  std::memmove(outputs[0].data, inputs[0].data, static_cast<std::size_t>(call.inputs[0].bytes()));
}

void reference_permute(const CallView& call, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs) {
  const std::vector<std::int64_t>& order = call.attrs.list("order");
  // Padded in front to rank 4: output extents and, per output dimension, the input's stride.
  std::int64_t extent[kMaxPermuteRank] = {1, 1, 1, 1}, stride[kMaxPermuteRank] = {0, 0, 0, 0};
  const std::size_t pad = kMaxPermuteRank - order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    extent[pad + i] = call.outputs[0].shape[i];
    stride[pad + i] = 1;
    for (std::size_t axis = static_cast<std::size_t>(order[i]) + 1; axis < order.size(); ++axis)
      stride[pad + i] *= call.inputs[0].shape[axis];
  }
  const auto* x = inputs[0].as<std::uint32_t>();
  auto* y = outputs[0].as<std::uint32_t>();
  for (std::int64_t a = 0; a < extent[0]; ++a)
    for (std::int64_t b = 0; b < extent[1]; ++b)
      for (std::int64_t c = 0; c < extent[2]; ++c)
        for (std::int64_t d = 0; d < extent[3]; ++d)
          *y++ = x[a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]];
}

void reference_stack(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i) outputs[0].as<float>()[i] = *inputs[i].as<float>();
}

std::vector<Tensor> gradient_reshape(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return {reshape(args.cotangents[0], args.inputs[0].shape())};
}

std::vector<Tensor> gradient_permute(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  const std::vector<std::int64_t>& order = args.call.attrs.list("order");
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return {permute(args.cotangents[0], inverse)};
}

// Dimensions are matched in runs of equal products; the slowest of each run may be split on both sides, and the next as well
// where the other side has all of the run in one dimension: "(ab)->ab".
std::string partition_reshape(const CallView& call) {
  const Shape& from = call.inputs[0].shape;
  const Shape& to = call.outputs[0].shape;
  std::string left, right;
  char letter = 'a';
  std::size_t i = 0, o = 0;
  while (i < from.size() && o < to.size()) {
    std::size_t taken = 1, given = 1;
    std::int64_t a = from[i++], b = to[o++];
    while (a != b) {
      if (a < b && i < from.size())
        a *= from[i++], ++taken;
      else if (o < to.size())
        b *= to[o++], ++given;
      else
        break;
    }
    const std::string one(1, letter++);
    const std::string two = (taken == 1) != (given == 1) ? std::string(1, letter++) : ".";
    const auto side = [&](std::size_t dims) {
      if (two == ".") return one + std::string(dims - 1, '.');
      return dims == 1 ? "(" + one + two + ")" : one + two + std::string(dims - 2, '.');
    };
    left += side(taken);
    right += side(given);
  }
  return left + std::string(from.size() - i, '.') + "->" + right + std::string(to.size() - o, '.');
}

std::string partition_permute(const CallView& call) {
  const std::string x = letters(call.inputs[0].rank());
  std::string y;
  for (std::int64_t axis : call.attrs.list("order")) y += x[static_cast<std::size_t>(axis)];
  return x + "->" + y;
}

std::string partition_stack(const CallView& call) {
  std::string text;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) text += i ? ",." : ".";
  return text + "->.";
}

LowPrecision low_precision(const CallView&) { return {.any = {0}}; }

Tolerance exact(const CallView&) { return {}; }
std::vector<std::pair<int, int>> in_place_reshape(const CallView&) { return {{0, 0}}; }

Case reshaped(std::string name, Shape from, Shape to) {
  return {std::move(name), {{DType::f32, std::move(from)}}, {{"shape", std::move(to)}}};
}
std::vector<Case> cases_reshape() {
  return {reshaped("flatten", {3, 5, 7}, {105}), reshaped("heads", {2, 9, 24}, {2, 9, 3, 8}),
          reshaped("rows", {4, 5, 6}, {20, 6}), reshaped("scalar", {1}, {1, 1})};
}
Case random_reshape(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t a = rng.extent(20), b = rng.extent(20), c = rng.extent(20);
  return rng.flip() ? reshaped("random", {a, b, c}, {a * b, c}) : reshaped("random", {a, b * c}, {a, b, c});
}

Case permuted(std::string name, Shape shape, std::vector<std::int64_t> order, DType dtype = DType::f32,
              bool slow = false) {
  return {std::move(name), {{dtype, std::move(shape)}}, {{"order", std::move(order)}}, slow};
}
std::vector<Case> cases_permute() {
  return {permuted("vector", {37}, {0}),
          permuted("transpose", {19, 35}, {1, 0}),
          permuted("transpose-one", {1, 67}, {1, 0}),
          permuted("identity", {9, 17}, {0, 1}),
          permuted("rotate", {5, 7, 11}, {2, 0, 1}),
          permuted("heads", {2, 17, 3, 20}, {0, 2, 1, 3}),
          permuted("reverse", {2, 3, 5, 7}, {3, 2, 1, 0}),
          permuted("integers", {23, 31}, {1, 0}, DType::i32),
          permuted("gpt2-heads", {4, 256, 12, 64}, {0, 2, 1, 3}, DType::f32, true)};
}
Case random_permute(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t rank = rng.integer(1, 4);
  Shape shape;
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < rank; ++i) {
    shape.push_back(rng.extent(rank < 3 ? 100 : 17));
    order.insert(order.begin() + rng.integer(0, i), i);
  }
  return permuted("random", shape, order, rng.flip(0.8) ? DType::f32 : DType::i32);
}

Case stacked(std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  return {std::to_string(count), std::vector<TensorType>(size, TensorType{DType::f32, {1}}), {}};
}
std::vector<Case> cases_stack() { return {stacked(1), stacked(2), stacked(7), stacked(8), stacked(31)}; }
Case random_stack(const CaseSeed& seed) { return stacked(Rng(seed).extent(70)); }

}  // namespace

Tensor reshape(Tensor x, Shape shape) {
  return x.builder->call1("reshape", {x}, {{"shape", std::move(shape)}});
}
Tensor permute(Tensor x, std::vector<std::int64_t> order) {
  return x.builder->call1("permute", {x}, {{"order", std::move(order)}});
}
Tensor stack(const std::vector<Tensor>& scalars) {
  if (scalars.empty()) throw hal::Error("stack", "needs at least one input", "none");
  return scalars.front().builder->call1("stack", scalars);
}

void add_layout(Catalog& catalog) {
  catalog.add(Contract{.name = "reshape",
                       .infer = infer_reshape,
                       .flops = no_flops,
                       .bytes = no_bytes,
                       .reference = reference_reshape,
                       .low_precision = low_precision,
                       .gradient = gradient_reshape,
                       .partition = partition_reshape,
                       .tolerance = exact,
                       .cases = cases_reshape,
                       .in_place = in_place_reshape,
                       .view = true,
                       .random_case = random_reshape});
  catalog.add(Contract{.name = "permute",
                       .infer = infer_permute,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_permute,
                       .low_precision = low_precision,
                       .gradient = gradient_permute,
                       .partition = partition_permute,
                       .tolerance = exact,
                       .cases = cases_permute,
                       .in_place = never_in_place,
                       .random_case = random_permute});
  catalog.add(Contract{.name = "stack",
                       .infer = infer_stack,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_stack,
                       .partition = partition_stack,
                       .tolerance = exact,
                       .cases = cases_stack,
                       .in_place = never_in_place,
                       .random_case = random_stack});
}

}  // namespace meshloom::kernels
