#include "kernels/cumsum/cumsum.h"

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("cumsum", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({}, {"reverse"});
  rules.dtype(0, DType::f32);
  rules.rank(0, 1, 8);
  return {rules[0]};
}

double flops(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(-1), rows = call.inputs[0].elements() / n;
  const bool reverse = call.attrs.flag("reverse");
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = r * n + (reverse ? n - 1 - i : i);
      sum += inputs[0].as<float>()[at];
      outputs[0].as<float>()[at] = static_cast<float>(sum);
    }
  }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  return {cumsum(args.cotangents[0], !args.call.attrs.flag("reverse"))};
}

std::string partition(const CallView& call) {
  const std::string rows = letters(call.inputs[0].rank() - 1);
  return rows + ".->" + rows + ".";
}

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(call.inputs[0].dim(-1)), 1);
}

std::vector<std::pair<int, int>> in_place(const CallView&) { return {{0, 0}}; }

Case make(const std::string& name, Shape shape, bool reverse) {
  Case result{name, {{DType::f32, std::move(shape)}}, {}};
  if (reverse) result.attrs.set("reverse", true);
  return result;
}
std::vector<Case> cases() {
  return {make("one", {1}, false),        make("prime", {17, 31}, true), make("row", {257}, false),
          make("cube", {3, 5, 64}, true), make("wide", {3, 4099}, true), make("many", {1031, 7}, false)};
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return make("random", {rng.extent(90), rng.extent(300)}, rng.flip());
}

}  // namespace

Tensor cumsum(Tensor x, bool reverse) {
  Attrs attrs;
  if (reverse) attrs.set("reverse", true);
  return x.builder->call1("cumsum", {x}, std::move(attrs));
}

void add_cumsum(Catalog& catalog) {
  catalog.add(Contract{.name = "cumsum",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
