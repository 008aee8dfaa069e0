// Products whose K is cut into parts side by side: that it happens where it should, and what comes out.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/nf4_matmul/nf4.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using kernels::Case;
using kernels::DType;
using kernels::Fit;
using kernels::Shape;

struct Product {
  std::int64_t g = 0, m = 1, n = 1, k = 1;  // g = 0: no batch dimension
  bool trans_a = false, trans_b = false, bias = false, residual = false;
  std::string activation = {};
  DType factors = DType::f32, c = DType::f32;
};

Case case_of(const Product& p) {
  const auto matrix = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
    return kernels::TensorType{dtype, p.g ? Shape{p.g, rows, columns} : Shape{rows, columns}};
  };
  Case result{"split", {}, {}, false};
  result.inputs = {p.trans_a ? matrix(p.factors, p.k, p.m) : matrix(p.factors, p.m, p.k),
                   p.trans_b ? matrix(p.factors, p.n, p.k) : matrix(p.factors, p.k, p.n)};
  if (p.bias) result.inputs.push_back({DType::f32, {p.n}});
  if (p.residual) result.inputs.push_back(matrix(p.c, p.m, p.n));
  if (p.c != p.factors) result.attrs.set("dtype", std::string(hal::to_string(p.c)));
  if (p.trans_a) result.attrs.set("trans_a", true);
  if (p.trans_b) result.attrs.set("trans_b", true);
  if (p.bias) result.attrs.set("bias", true);
  if (p.residual) result.attrs.set("residual", true);
  if (!p.activation.empty()) result.attrs.set("activation", p.activation);
  return result;
}

std::int64_t parts_of(const Fit& fit) {
  const auto found = fit.params.find("parts");
  return found == fit.params.end() ? 1 : found->second;
}

class SplitK : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == GetParam() && !found.devices.empty())
        device_ = hal::checked(registry_.open(found.devices.front().id, "h100"));
    if (!device_) GTEST_SKIP() << "no device of " << GetParam();
  }

  const kernels::Variant& variant(const std::string& name, const std::string& op = "matmul") const {
    return *catalog_.find(op, GetParam(), name);
  }
  Fit fit(const Product& product, const hal::DeviceInfo& target, const std::string& name = "gpu_tile") const {
    return variant(name).fit(CaseCall(catalog_, "matmul", case_of(product)).view(), target);
  }
  std::vector<Fit> alternatives(const Product& product) const {
    return variant("gpu_tile")
        .alternatives(CaseCall(catalog_, "matmul", case_of(product)).view(), device_->info());
  }
  // Held to the reference, in place too, and to the same bits when submitted again.
  void expect_right(const std::string& op, const std::string& name, const Case& test, const Fit& fit) {
    const Outcome outcome = run_variant(*device_, variant(name, op), fit, CaseCall(catalog_, op, test), 7);
    EXPECT_TRUE(outcome.ran) << outcome.refusal;
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
};

// Few tiles and a long K: one workgroup's, decode's, gradients of weights, and every kind of end.
const std::vector<Product>& products() {
  static const std::vector<Product> all{
      {.m = 1, .n = 1, .k = 5003},
      {.m = 1, .n = 130, .k = 1031, .trans_b = true, .bias = true, .activation = "gelu_tanh"},
      {.m = 40, .n = 24, .k = 5000, .trans_a = true, .residual = true},
      {.m = 37, .n = 53, .k = 1029, .trans_a = true, .trans_b = true},
      {.g = 3, .m = 17, .n = 19, .k = 777, .bias = true, .residual = true, .activation = "relu"},
      {.g = 2,
       .m = 33,
       .n = 5,
       .k = 1025,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .activation = "silu"},
      {.m = 23, .n = 31, .k = 2049, .trans_a = true, .factors = DType::bf16},
      {.m = 64, .n = 48, .k = 2048, .trans_a = true, .residual = true, .factors = DType::f16},
      {.g = 2,
       .m = 9,
       .n = 35,
       .k = 1111,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .activation = "gelu",
       .factors = DType::bf16,
       .c = DType::bf16},
      {.m = 5, .n = 21, .k = 1500, .bias = true, .residual = true, .factors = DType::f16, .c = DType::f16},
  };
  return all;
}

TEST_P(SplitK, EqualsTheReference) {
  for (const Product& product : products()) {
    const Fit chosen = fit(product, device_->info());
    ASSERT_TRUE(chosen.ok) << chosen.reason;
    EXPECT_GT(parts_of(chosen), 1);
    EXPECT_EQ(chosen.workspace_bytes,
              4 * parts_of(chosen) * std::max<std::int64_t>(product.g, 1) * product.m * product.n);
    expect_right("matmul", "gpu_tile", case_of(product), chosen);
  }
}

TEST_P(SplitK, EqualsTheReferenceOnTheMatrixUnit) {
  if (GetParam() != "vulkan") GTEST_SKIP() << "the matrix unit is Vulkan's";
  int ran = 0;
  std::string refusal;
  for (Product product : products()) {
    if (product.factors == DType::f32) product.factors = DType::f16;
    const Fit chosen = fit(product, device_->info(), "cooperative");
    if (!chosen.ok) {
      refusal = chosen.reason;
      continue;
    }
    EXPECT_GT(parts_of(chosen), 1) << product.k;
    expect_right("matmul", "cooperative", case_of(product), chosen);
    ++ran;
  }
  if (ran == 0) GTEST_SKIP() << "cooperative refuses: " << refusal;
}

TEST_P(SplitK, FourBitWeightsToo) {
  constexpr std::int64_t kRows = 1100, kColumns = 33, kM = 6;
  for (const bool trans_b : {false, true}) {
    const std::int64_t rows = trans_b ? kColumns : kRows, columns = trans_b ? kRows : kColumns;
    Case test{"split",
              {{DType::f32, {kM, kRows}},
               {DType::u8, {rows, kernels::nf4::row_bytes(columns)}},
               {DType::f32, {rows, kernels::nf4::blocks(columns, kernels::nf4::kBlock)}},
               {DType::f32, {kColumns}},
               {DType::f32, {kM, kColumns}}},
              {{"columns", columns}, {"block", kernels::nf4::kBlock}, {"bias", true}, {"residual", true}},
              false};
    if (trans_b) test.attrs.set("trans_b", true);
    const Fit chosen =
        variant("gpu_tile", "nf4_matmul").fit(CaseCall(catalog_, "nf4_matmul", test).view(), device_->info());
    ASSERT_TRUE(chosen.ok) << chosen.reason;
    EXPECT_GT(parts_of(chosen), 1);
    expect_right("nf4_matmul", "gpu_tile", test, chosen);
  }
}

// Tuning tries one part and several, which is what a choice without "parts" means.
TEST_P(SplitK, AlternativesHaveOnePartAndMore) {
  const Product product{.m = 100, .n = 60, .k = 2001, .trans_a = true, .bias = true};
  std::set<std::int64_t> numbers;
  for (const Fit& other : alternatives(product)) {
    if (!numbers.insert(parts_of(other)).second) continue;
    EXPECT_EQ(other.params.count("parts"), parts_of(other) > 1);
    expect_right("matmul", "gpu_tile", case_of(product), other);
  }
  EXPECT_TRUE(numbers.count(1));
  EXPECT_GE(numbers.size(), 3u);
}

TEST_P(SplitK, OnlyWhereItRepays) {
  const hal::DeviceInfo& info = device_->info();
  EXPECT_EQ(parts_of(fit({.m = 2048, .n = 2048, .k = 4096}, info)), 1) << "a tile for every core";
  EXPECT_EQ(parts_of(fit({.g = 132, .m = 8, .n = 8, .k = 4096}, info)), 1) << "a product for every core";
  EXPECT_EQ(parts_of(fit({.m = 16, .n = 16, .k = 240}, info)), 1) << "K is short";
  for (const Fit& other : alternatives({.m = 2048, .n = 2048, .k = 512})) EXPECT_EQ(parts_of(other), 1);
}

// On a GPU parts are chosen by time: they cost what their sums take to write and to read.
TEST_P(SplitK, OfGpusByTheTimeOfTheSums) {
  hal::DeviceInfo gpu = device_->info();
  gpu.is_cpu = false;
  const auto parts_at = [&](const Product& product, double bytes_per_second) {
    gpu.profile.memory_bytes_per_second = bytes_per_second;
    return parts_of(fit(product, gpu));
  };
  const Product uneven{.m = 2048, .n = 576, .k = 1536}, deep{.m = 64, .n = 64, .k = 65536};
  EXPECT_GT(parts_at(uneven, 1e14), 1);
  EXPECT_EQ(parts_at(uneven, 1e11), 1);
  EXPECT_GT(parts_at(deep, 1e14), parts_at(deep, 1e11));
  EXPECT_GT(parts_at(deep, 1e11), 1) << "few sums of long products";
  gpu.profile.peak_flops.clear();
  EXPECT_GT(parts_at(deep, 0), 1) << "rates that nobody told";
}

TEST_P(SplitK, StaysWithinLimits) {
  hal::DeviceInfo info = device_->info();
  info.limits.max_groups[2] = 15;
  const Product batch{.g = 3, .m = 8, .n = 8, .k = 8192};
  EXPECT_EQ(parts_of(fit(batch, info)), 5);
  info.limits.max_groups[2] = 5;
  EXPECT_EQ(parts_of(fit(batch, info)), 1);
}

// Where a driver ends loops early, parts side by side are short enough, or K is cut in turns as ever.
TEST_P(SplitK, LoopsStayShort) {
  hal::DeviceInfo info = device_->info();
  info.name = "llvmpipe";
  info.profile.cores = 2;
  const Product deep{.m = 3, .n = 5, .k = 200003};
  const Fit side_by_side = fit(deep, info);
  ASSERT_TRUE(side_by_side.ok) << side_by_side.reason;
  EXPECT_GT(parts_of(side_by_side), 4) << "more than two for each core";
  EXPECT_LE(deep.k, parts_of(side_by_side) * side_by_side.params.at("depth"));
  expect_right("matmul", "gpu_tile", case_of(deep), side_by_side);
  info.profile.cores = 1;
  const Fit in_turns = fit(deep, info);
  ASSERT_TRUE(in_turns.ok) << in_turns.reason;
  EXPECT_EQ(parts_of(in_turns), 1);
  EXPECT_LT(in_turns.params.at("depth"), deep.k);
  expect_right("matmul", "gpu_tile", case_of(deep), in_turns);
}

INSTANTIATE_TEST_SUITE_P(Backends, SplitK, testing::Values("opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom::tests
