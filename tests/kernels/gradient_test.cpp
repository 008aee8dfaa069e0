// The gradient of every differentiable op against differences of its reference.
#include "tests/kernels/finite_difference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/core/rng.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

// Gradients that pass straight through a rounding are no derivatives: tests/trainer/compose/quantize_test.cpp looks at those.
bool passes_rounding(const std::string& op) {
  return op == "quantize_dequantize" || op == "quantize_dequantize_grad";
}

std::vector<std::string> differentiable() {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  std::vector<std::string> names;
  for (const kernels::Contract* contract : catalog.contracts())
    if (contract->gradient && !passes_rounding(contract->name)) names.push_back(contract->name);
  return names;
}

// The composer fuses activations into matmuls after differentiation: those calls refuse a cotangent. Activations that are rounded to
// int8 have no derivative.
bool has_gradient(const kernels::Case& test) {
  return !test.attrs.has("activation") && !test.attrs.has("through") && !test.attrs.has("activations");
}
// Integers carry no cotangent, and 16-bit floats are too coarse for differences.
bool has_floats(const kernels::Case& test) {
  const auto any = [&](auto holds) {
    return std::any_of(test.inputs.begin(), test.inputs.end(),
                       [&](const kernels::TensorType& type) { return holds(type.dtype); });
  };
  return any([](kernels::DType dtype) { return dtype == kernels::DType::f32; }) &&
         !any(hal::is_low_precision) && !test.attrs.has("dtype");
}

class Gradients : public testing::TestWithParam<std::string> {};

TEST_P(Gradients, EqualDifferences) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  const kernels::Contract& contract = catalog.contract(GetParam());
  int coordinates = 0;
  double worst = 0;
  const auto check = [&](const kernels::Case& test, std::uint64_t seed) {
    if (!has_gradient(test) || !has_floats(test)) return;
    const GradientCheck result = check_gradient(catalog, contract.name, test, seed);
    coordinates += result.coordinates;
    worst = std::max(worst, result.worst);
    for (const std::string& failure : result.failures) ADD_FAILURE() << failure << ", seed " << seed;
  };
  std::uint64_t seed = 1;
  for (const kernels::Case& test : contract.cases())
    if (!test.slow) check(test, seed++);
  for (int i = 0; contract.random_case && i < fuzz_rounds(10); ++i) {
    const std::uint64_t fuzz = 2000 + static_cast<std::uint64_t>(i);
    check(contract.random_case({kernels::mix(fuzz, 78)}), fuzz);
  }
  fmt::print("  {}: {} derivatives compared, worst error {:.3f} of what is allowed\n", contract.name,
             coordinates, worst);
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradients, testing::ValuesIn(differentiable()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom::tests
