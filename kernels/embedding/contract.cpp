#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"

namespace meshloom::kernels {
namespace {

void check_first(const Rules& rules, const Attrs& attrs) {
  if (attrs.has("first"))
    rules.require(rules.integer("first") >= 0, "first must not be negative",
                  std::to_string(rules.integer("first")));
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("embedding", inputs, attrs);
  rules.inputs({"table", "ids"});
  rules.attributes({}, {"dtype", "first"});
  rules.floating(0);
  rules.dtype(1, DType::i32);
  rules.rank(0, 2, 2);
  rules.rank(1, 1, 7);
  check_first(rules, attrs);
  Shape shape = rules[1].shape;
  shape.push_back(rules[0].dim(1));
  return {{rules.result_dtype(), shape}};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("embedding_grad", inputs, attrs);
  if (rules.flag("residual"))
    rules.inputs({"ids", "dy", "residual"});
  else
    rules.inputs({"ids", "dy"});
  rules.attributes({"rows"}, {"residual", "first"});
  rules.dtype(0, DType::i32);
  rules.floating(1);
  rules.rank(0, 1, 7);
  rules.rank(1, rules[0].rank() + 1, rules[0].rank() + 1);
  Shape shape = rules[0].shape;
  shape.push_back(rules[1].dim(-1));
  rules.shape(1, shape);
  check_first(rules, attrs);
  const std::int64_t rows = rules.integer("rows");
  rules.require(rows > 0, "rows must be positive", std::to_string(rows));
  const TensorType result{DType::f32, {rows, rules[1].dim(-1)}};
  if (rules.flag("residual")) {
    rules.dtype(2, DType::f32);
    rules.shape(2, result.shape);
  }
  return {result};
}

// Only the rows that are looked up are read.
double bytes(const CallView& call) {
  const auto size = static_cast<std::int64_t>(hal::size_of(call.inputs[0].dtype));
  return static_cast<double>(call.inputs[1].bytes() + call.outputs[0].elements() * size +
                             call.outputs[0].bytes());
}
// With a residual only the rows that occur are read and written: in place nothing else happens.
double bytes_grad(const CallView& call) {
  if (!call.attrs.flag("residual")) return bytes_once(call);
  const std::int64_t touched = std::min(call.inputs[0].elements(), call.outputs[0].dim(0));
  return static_cast<double>(call.inputs[0].bytes() + call.inputs[1].bytes() +
                             2 * touched * call.outputs[0].dim(1) * 4);
}
double flops_grad(const CallView& call) { return static_cast<double>(call.inputs[1].elements()); }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), d = call.inputs[0].dim(1);
  for (std::int64_t i = 0; i < call.inputs[1].elements(); ++i) {
    const std::int64_t id = inputs[1].as<std::int32_t>()[i] - embedding_first(call);
    float* out = outputs[0].as<float>() + i * d;
    const auto size = static_cast<std::size_t>(d) * sizeof(float);
    if (id < 0 || id >= rows)
      std::memset(out, 0, size);
    else
      std::memcpy(out, inputs[0].as<float>() + id * d, size);
  }
}

void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t rows = call.outputs[0].dim(0), d = call.outputs[0].dim(1);
  std::map<std::int64_t, std::vector<double>> sums;
  for (std::int64_t i = 0; i < call.inputs[0].elements(); ++i) {
    const std::int64_t id = inputs[0].as<std::int32_t>()[i] - embedding_first(call);
    if (id < 0 || id >= rows) continue;
    std::vector<double>& sum = sums.try_emplace(id, static_cast<std::size_t>(d), 0.0).first->second;
    for (std::int64_t k = 0; k < d; ++k) sum[static_cast<std::size_t>(k)] += inputs[1].as<float>()[i * d + k];
  }
  float* out = outputs[0].as<float>();
  if (call.attrs.flag("residual"))
    std::copy_n(inputs[2].as<float>(), rows * d, out);
  else
    std::fill_n(out, rows * d, 0.0f);
  for (const auto& [id, sum] : sums)
    for (std::int64_t k = 0; k < d; ++k)
      out[id * d + k] = static_cast<float>(out[id * d + k] + sum[static_cast<std::size_t>(k)]);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}};
  Attrs attrs{{"rows", args.inputs[0].dim(0)}};
  if (args.call.attrs.has("first")) attrs.set("first", args.call.attrs.integer("first"));
  return {args.builder.call1("embedding_grad", {args.inputs[1], args.cotangents[0]}, attrs), Tensor{}};
}

// Ids name rows of the whole table: of a part of it, those from `first` on; the others have zeros there.
std::string partition(const CallView& call) {
  const std::string ids = letters(call.inputs[1].rank());
  return "vz," + ids + "->" + ids + "z";
}
std::string partition_grad(const CallView& call) {
  const std::string ids = letters(call.inputs[0].rank());
  return ids + "," + ids + (call.attrs.flag("residual") ? "z,vz->vz" : "z->vz");
}

std::vector<Tensor> local(const LocalArgs& args) {
  Attrs attrs = args.attrs;
  std::vector<Tensor> inputs = args.inputs;
  if (attrs.flag("residual"))  // one of the shards that sum adds it
    for (const auto& [letter, cut] : args.cuts)
      if (letter != 'v' && letter != 'z') inputs[2] = scale(inputs[2], cut.place == 0 ? 1 : 0);
  if (const auto cut = args.cuts.find('v'); cut != args.cuts.end()) {
    attrs.set("first", embedding_first(args.whole) + cut->second.first);
    if (attrs.has("rows")) attrs.set("rows", cut->second.count);
  }
  return args.builder.call(args.whole.op, inputs, attrs);
}

std::vector<std::pair<int, int>> in_place_grad(const CallView& call) {
  if (!call.attrs.flag("residual")) return {};
  return {{2, 0}};
}

LowPrecision low_precision(const CallView&) { return {.any = {0}, .attribute = true, .always = true}; }
LowPrecision low_precision_grad(const CallView&) { return {.any = {1}}; }

Tolerance tolerance(const CallView&) { return {}; }
Tolerance tolerance_grad(const CallView& call) {
  Tolerance result = sum_tolerance(static_cast<double>(call.inputs[0].elements()));
  result.scale = 1;
  return result;
}

// Mostly valid ids with repetitions, some outside on both sides.
void fill_ids(const TensorView& into, std::uint64_t seed, std::int64_t rows) {
  fill_integers(into, seed, 0, rows - 1);
  auto* ids = into.as<std::int32_t>();
  for (std::int64_t i = 3; i < into.type.elements(); i += 7)
    ids[i] = i % 3 == 0 ? -1 : i % 3 == 1 ? static_cast<std::int32_t>(rows) : ids[0];
}
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 1) return fill_ids(into, mix(seed, 1), call.inputs[0].dim(0) + embedding_first(call));
  fill_uniform(into, mix(seed, 0), -1, 1);
}
void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 0) return fill_ids(into, mix(seed, 0), call.outputs[0].dim(0) + embedding_first(call));
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
}

struct Spec {
  std::string name;
  std::int64_t rows, d;
  Shape ids;
  bool slow = false;
  bool residual = false;  // of the gradient
  std::int64_t first = 0;
};
std::vector<Spec> specs() {
  return {{"one", 1, 1, {1}},
          {"rows", 17, 5, {23}},
          {"batch", 97, 24, {3, 19}},
          {"wide", 11, 131, {2, 3}},
          {"repeated", 3, 33, {4, 31}},
          {"residual", 37, 13, {2, 11}, false, true},
          {"repeated_residual", 3, 65, {4, 31}, false, true},
          {"part", 23, 9, {3, 17}, false, false, 11},
          {"residual_part", 23, 9, {3, 17}, false, true, 40},
          {"bytes", 256, 64, {2, 65}},
          {"cube", 31, 8, {2, 3, 5}},
          {"smollm2", 49152, 576, {1, 128}, true},
          {"gpt2", 50257, 768, {4, 64}, true}};
}
Attrs first_of(const Spec& s) { return s.first ? Attrs{{"first", s.first}} : Attrs{}; }
Case forward(const Spec& s) {
  return {s.name, {{DType::f32, {s.rows, s.d}}, {DType::i32, s.ids}}, first_of(s), s.slow};
}
Case backward(const Spec& s) {
  Shape dy = s.ids;
  dy.push_back(s.d);
  Case result{s.name, {{DType::i32, s.ids}, {DType::f32, dy}}, first_of(s), s.slow};
  result.attrs.set("rows", s.rows);
  if (s.residual) {
    result.attrs.set("residual", true);
    result.inputs.push_back({DType::f32, {s.rows, s.d}});
  }
  return result;
}
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs())
    if (!spec.residual) result.push_back(forward(spec));
  return result;
}
std::vector<Case> cases_grad() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(backward(spec));
  return result;
}
Spec random_spec(const CaseSeed& seed) {
  Rng rng(seed);
  Spec spec{"random", rng.extent(300), rng.extent(150), {rng.extent(130)}};
  if (rng.flip()) spec.ids = {rng.integer(1, 4), rng.extent(40)};
  spec.residual = rng.flip();
  if (rng.flip(0.3)) spec.first = rng.integer(1, 100);
  return spec;
}
Case random_case(const CaseSeed& seed) { return forward(random_spec(seed)); }
Case random_grad(const CaseSeed& seed) { return backward(random_spec(seed)); }

}  // namespace

std::int64_t embedding_first(const CallView& call) {
  return call.attrs.has("first") ? call.attrs.integer("first") : 0;
}

Tensor embedding(Tensor table, Tensor ids) { return table.builder->call1("embedding", {table, ids}); }

void add_embedding(Catalog& catalog) {
  catalog.add(Contract{.name = "embedding",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes,
                       .reference = reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .local = local,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
  catalog.add(Contract{.name = "embedding_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes_grad,
                       .reference = reference_grad,
                       .low_precision = low_precision_grad,
                       .partition = partition_grad,
                       .local = local,
                       .tolerance = tolerance_grad,
                       .cases = cases_grad,
                       .in_place = in_place_grad,
                       .make_input = make_input_grad,
                       .random_case = random_grad});
}

}  // namespace meshloom::kernels
