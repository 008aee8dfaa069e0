#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/top_k/top_k.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer_top_k(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("top_k", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"k"});
  rules.dtype(0, DType::f32);
  rules.rank(0, 2, 2);
  const std::int64_t k = rules.integer("k");
  rules.require(k >= 1 && k <= rules[0].dim(1),
                "k must be at least 1 and at most the columns of " + to_string(rules[0]), std::to_string(k));
  return {{DType::i32, {rules[0].dim(0), k}}};
}

std::vector<TensorType> infer_take(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("gather", inputs, attrs);
  rules.inputs({"x", "ids"});
  rules.attributes({});
  rules.dtype(0, DType::f32);
  rules.dtype(1, DType::i32);
  rules.rank(0, 2, 2);
  rules.rank(1, 2, 2);
  rules.shape(1, {rules[0].dim(0), rules[1].dim(1)});
  return {{DType::f32, rules[1].shape}};
}

std::vector<TensorType> infer_put(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("scatter_add", inputs, attrs);
  rules.inputs({"v", "ids"});
  rules.attributes({"columns"});
  rules.dtype(0, DType::f32);
  rules.dtype(1, DType::i32);
  rules.rank(0, 2, 2);
  rules.shape(1, rules[0].shape);
  const std::int64_t columns = rules.integer("columns");
  rules.require(columns > 0, "columns must be positive", std::to_string(columns));
  return {{DType::f32, {rules[0].dim(0), columns}}};
}

double flops_top_k(const CallView& call) {
  return static_cast<double>(call.inputs[0].elements() * call.attrs.integer("k"));
}
double flops_put(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }
// Only what is chosen is read.
double bytes_take(const CallView& call) { return 3.0 * static_cast<double>(call.outputs[0].bytes()); }

void reference_top_k(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), n = call.inputs[0].dim(1), k = call.outputs[0].dim(1);
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * n;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [x](std::int32_t a, std::int32_t b) { return x[a] > x[b]; });
    std::copy_n(order.begin(), k, outputs[0].as<std::int32_t>() + r * k);
  }
}

void reference_take(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(1), k = call.inputs[1].dim(1);
  for (std::int64_t i = 0; i < call.inputs[1].elements(); ++i) {
    const std::int64_t id = inputs[1].as<std::int32_t>()[i];
    outputs[0].as<float>()[i] = id >= 0 && id < n ? inputs[0].as<float>()[i / k * n + id] : 0.0f;
  }
}

void reference_put(const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), k = call.inputs[0].dim(1), n = call.outputs[0].dim(1);
  std::vector<double> sums(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t id = inputs[1].as<std::int32_t>()[r * k + j];
      if (id >= 0 && id < n) sums[static_cast<std::size_t>(id)] += inputs[0].as<float>()[r * k + j];
    }
    std::transform(sums.begin(), sums.end(), outputs[0].as<float>() + r * n,
                   [](double sum) { return static_cast<float>(sum); });
  }
}

std::vector<Tensor> gradient_take(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}};
  return {scatter_add(args.cotangents[0], args.inputs[1], args.inputs[0].dim(1)), Tensor{}};
}
std::vector<Tensor> gradient_put(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}};
  return {gather(args.cotangents[0], args.inputs[1]), Tensor{}};
}

std::string partition_top_k(const CallView&) { return "a.->a."; }
std::string partition_pair(const CallView&) { return "a.,a.->a."; }

Tolerance exact(const CallView&) { return {}; }
Tolerance tolerance_put(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].dim(1)));
}

// Many equal elements.
void make_top_k(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  const std::int64_t n = call.inputs[0].dim(1);
  Rng rng(mix(seed, 0));
  for (std::int64_t i = 0; i < into.type.elements(); ++i)
    into.as<float>()[i] = static_cast<float>(i / n % 3 == 0 ? rng.uniform(-1, 1)
                                                            : 0.25 * static_cast<double>(rng.integer(-4, 3)));
}
void fill_ids(const TensorView& into, std::uint64_t seed, std::int64_t columns) {
  fill_integers(into, seed, 0, columns - 1);
  for (std::int64_t i = 4; i < into.type.elements(); i += 9)
    into.as<std::int32_t>()[i] = i % 2 ? -1 : static_cast<std::int32_t>(columns);
}
void make_take(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 1) return fill_ids(into, mix(seed, 1), call.inputs[0].dim(1));
  fill_uniform(into, mix(seed, 0), -1, 1);
}
void make_put(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 1) return fill_ids(into, mix(seed, 1), call.outputs[0].dim(1));
  fill_uniform(into, mix(seed, 0), -1, 1);
}

struct Spec {
  std::string name;
  std::int64_t m, n, k;
  bool slow = false;
};
std::vector<Spec> specs() {
  return {
      {"one", 1, 1, 1},     {"switch", 65, 8, 1}, {"mixtral", 131, 8, 2}, {"all", 19, 7, 7},
      {"wide", 5, 1031, 3}, {"deep", 33, 64, 9},  {"row", 1, 33, 4},      {"qwen3-moe", 4096, 128, 8, true}};
}
Case top_k_case(const Spec& s) { return {s.name, {{DType::f32, {s.m, s.n}}}, {{"k", s.k}}, s.slow}; }
Case take_case(const Spec& s) {
  return {s.name, {{DType::f32, {s.m, s.n}}, {DType::i32, {s.m, s.k}}}, {}, s.slow};
}
Case put_case(const Spec& s) {
  return {s.name, {{DType::f32, {s.m, s.k}}, {DType::i32, {s.m, s.k}}}, {{"columns", s.n}}, s.slow};
}
template <Case (*make)(const Spec&)>
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}
template <Case (*make)(const Spec&)>
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  Spec spec{"random", rng.extent(150), rng.extent(100), 1};
  spec.k = std::min(spec.n, rng.integer(1, 9));
  return make(spec);
}

}  // namespace

Tensor top_k(Tensor x, std::int64_t k) { return x.builder->call1("top_k", {x}, {{"k", k}}); }
Tensor gather(Tensor x, Tensor ids) { return x.builder->call1("gather", {x, ids}); }
Tensor scatter_add(Tensor values, Tensor ids, std::int64_t columns) {
  return values.builder->call1("scatter_add", {values, ids}, {{"columns", columns}});
}

void add_top_k(Catalog& catalog) {
  catalog.add(Contract{.name = "top_k",
                       .infer = infer_top_k,
                       .flops = flops_top_k,
                       .bytes = bytes_once,
                       .reference = reference_top_k,
                       .partition = partition_top_k,
                       .tolerance = exact,
                       .cases = cases<top_k_case>,
                       .in_place = never_in_place,
                       .make_input = make_top_k,
                       .random_case = random_case<top_k_case>});
  catalog.add(Contract{.name = "gather",
                       .infer = infer_take,
                       .flops = no_flops,
                       .bytes = bytes_take,
                       .reference = reference_take,
                       .gradient = gradient_take,
                       .partition = partition_pair,
                       .tolerance = exact,
                       .cases = cases<take_case>,
                       .in_place = never_in_place,
                       .make_input = make_take,
                       .random_case = random_case<take_case>});
  catalog.add(Contract{.name = "scatter_add",
                       .infer = infer_put,
                       .flops = flops_put,
                       .bytes = bytes_once,
                       .reference = reference_put,
                       .gradient = gradient_put,
                       .partition = partition_pair,
                       .tolerance = tolerance_put,
                       .cases = cases<put_case>,
                       .in_place = never_in_place,
                       .make_input = make_put,
                       .random_case = random_case<put_case>});
}

}  // namespace meshloom::kernels
