#include <algorithm>
#include <utility>

#include "kernels/cast/cast.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("cast", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"dtype"});
  rules.floating(0);
  rules.rank(0, 1, 8);
  const DType dtype = rules.result_dtype();
  rules.require(dtype != rules[0].dtype, "dtype must be another than that of x", to_string(rules[0]));
  return {{dtype, rules[0].shape}};
}

// Rounding is what narrow() does around it.
void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  std::copy_n(inputs[0].as<float>(), call.outputs[0].elements(), outputs[0].as<float>());
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return {cast(args.cotangents[0], args.inputs[0].dtype())};
}

std::string partition(const CallView& call) {
  const std::string all = letters(call.inputs[0].rank());
  return all + "->" + all;
}

Tolerance exact(const CallView&) { return {}; }

Case casting(std::string name, DType from, DType to, Shape shape, bool slow = false) {
  return {std::move(name), {{from, std::move(shape)}}, {{"dtype", std::string(hal::to_string(to))}}, slow};
}
std::vector<Case> cases() {
  std::vector<Case> result;
  for (DType narrow : {DType::bf16, DType::f16}) {
    const std::string name(hal::to_string(narrow));
    for (std::int64_t count : {1, 2, 7, 64, 1031, 4099}) {
      result.push_back(casting("to-" + name + "-" + std::to_string(count), DType::f32, narrow, {count}));
      result.push_back(casting("from-" + name + "-" + std::to_string(count), narrow, DType::f32, {count}));
    }
    result.push_back(casting("to-" + name + "-rows", DType::f32, narrow, {37, 53}));
    result.push_back(casting("smollm2-ffn-" + name, DType::f32, narrow, {1536, 576}, true));
  }
  result.push_back(casting("bf16-f16", DType::bf16, DType::f16, {333}));
  result.push_back(casting("f16-bf16", DType::f16, DType::bf16, {334}));
  return result;
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};
  const std::int64_t from = rng.integer(0, 2), to = (from + rng.integer(1, 2)) % 3;
  return casting("random", kFloats[from], kFloats[to], {rng.extent(90), rng.extent(90)});
}

// Ties, both directions from them, numbers too large and too small for f16.
void make_input(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, 0), -1, 1);
  constexpr float kOdd[] = {1.00390625f, 1.01171875f, -1.0048828125f, 1.00048828125f, 65504.0f, 65520.0f,
                            -1e30f,      3e-5f,       -2e-7f,         1e-9f,          0.0f,     -0.0f};
  for (std::int64_t i = 0; i < call.inputs[0].elements(); i += 3)
    into.as<float>()[i] = kOdd[static_cast<std::size_t>(i / 3) % std::size(kOdd)];
}

}  // namespace

Tensor cast(Tensor x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder->call1("cast", {x}, {{"dtype", std::string(hal::to_string(dtype))}});
}

DType gradient_dtype(const Tensor& x) {
  if (!hal::is_low_precision(x.dtype())) return x.dtype();
  const Program& program = x.builder->program();
  for (const Call& call : program.calls)
    if (call.op == "cast" && call.outputs[0] == x.id) return program.value(call.inputs[0]).type.dtype;
  return x.dtype();
}

void add_cast(Catalog& catalog) {
  catalog.add(Contract{.name = "cast",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
