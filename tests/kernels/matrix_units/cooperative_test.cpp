// The kernels of Vulkan's matrix unit where their tiles end, with the parameters that they choose here and with others that
// GPUs get.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/flash_attention/flash_attention.h"
#include "tests/kernels/harness.h"

namespace meshloom {
void add_built_backends(hal::Registry& registry, kernels::Catalog& catalog);  // backends/register.cpp
}

namespace meshloom::tests {
namespace {

using kernels::Case;
using kernels::DType;
using kernels::Fit;
using kernels::TensorType;

constexpr std::int64_t kOneMatrix = -1;  // of a changed parameter: as deep as a matrix

class Cooperative : public testing::Test {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    // Without the self-test, whose kernels drivers that emulate matrices compile for minutes.
    add_built_backends(registry_, catalog_);
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == "vulkan" && !found.devices.empty())
        device_ = hal::checked(registry_.open(found.devices.front().id));
    if (!device_) GTEST_SKIP() << "no device of vulkan";
    if (device_->info().limits.matrix_shapes.empty())
      GTEST_SKIP() << "the driver has no cooperative matrices";
  }

  // Held to the reference, with the variant's own parameters and with `changed` ones.
  void expect_right(const std::string& op, const Case& test, std::map<std::string, std::int64_t> changed = {},
                    std::uint64_t seed = 7) {
    const kernels::Variant& variant = *catalog_.find(op, "vulkan", "cooperative");
    const CaseCall call(catalog_, op, test);
    Fit fit = variant.fit(call.view(), device_->info());
    if (!fit.ok) {
      fmt::print("  {} refuses {}: {}\n", op, test.name, fit.reason);
      return;
    }
    for (const auto& [name, value] : changed)
      fit.params[name] = value == kOneMatrix ? fit.params.at("k") : value;
    const Outcome outcome = run_variant(*device_, variant, fit, call, seed);
    EXPECT_TRUE(outcome.ran) << outcome.refusal;
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    fmt::print("  {} {}: worst error {:.3f} of what is allowed\n", op, test.name, outcome.worst);
    std::fflush(stdout);
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
};

struct Product {
  std::string name;
  std::int64_t m, n, k;
  DType factors = DType::f16, c = DType::f16;
  bool more = false;  // a bias, an activation and a residual
};

// Operands that run along K and those that are turned; rows of whole words and others; K of whole steps and others.
TEST_F(Cooperative, ProductsEndAnywhere) {
  const std::vector<Product> products{{"whole", 32, 40, 64},
                                      {"wide", 40, 72, 40, DType::f16, DType::f16, true},
                                      {"narrow", 33, 19, 45, DType::f16, DType::f32, true},
                                      {"small", 1, 8, 8}};
  for (const Product& p : products)
    for (const int transposes : {0, 1, 2, 3}) {
      const bool a = transposes & 1, b = transposes & 2;
      Case test{fmt::format("{}{}{}", p.name, a ? ":ta" : "", b ? ":tb" : ""), {}, {}, false};
      const auto matrix = [](DType dtype, std::int64_t rows, std::int64_t columns, bool turned) {
        return TensorType{dtype, turned ? kernels::Shape{columns, rows} : kernels::Shape{rows, columns}};
      };
      test.inputs = {matrix(p.factors, p.m, p.k, a), matrix(p.factors, p.k, p.n, b)};
      if (a) test.attrs.set("trans_a", true);
      if (b) test.attrs.set("trans_b", true);
      if (p.c != p.factors) test.attrs.set("dtype", std::string(hal::to_string(p.c)));
      if (p.more) {
        test.inputs.push_back({DType::f32, {p.n}});
        test.inputs.push_back({p.c, {p.m, p.n}});
        test.attrs.set("bias", true);
        test.attrs.set("residual", true);
        test.attrs.set("activation", std::string("silu"));
      }
      expect_right("matmul", test);
      // As for ANV, whose tiles are a step of one matrix deep.
      if (p.more)
        expect_right("matmul", test,
                     {{"rolled", 1}, {"bk", kOneMatrix}, {"rows", 2}, {"columns", 1}, {"fm", 2}, {"fn", 1}});
    }
}

// Tiles that a group ends in, operands that run along K and those that are turned. How many rows each group has, and whether some
// belong to none, is drawn from the seed (kernels/grouped_matmul/cases.cpp).
TEST_F(Cooperative, GroupsEndAnywhere) {
  struct Groups {
    std::string name;
    std::int64_t groups, rows, n, k;
  };
  const std::vector<Groups> all{
      {"whole", 2, 64, 32, 64}, {"wide", 5, 90, 72, 40}, {"narrow", 9, 61, 19, 45}, {"small", 3, 3, 8, 8}};
  const std::map<std::string, std::int64_t> rolled{{"rolled", 1},  {"bk", kOneMatrix}, {"rows", 2},
                                                   {"columns", 1}, {"fm", 2},          {"fn", 1}};
  for (const Groups& g : all) {
    const TensorType x{DType::f16, {g.rows, g.k}}, offsets{DType::i32, {g.groups + 1}};
    const auto expect_groups_right = [&](const std::string& op, const Case& test) {
      for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) expect_right(op, test, {}, seed);
      if (g.name == "wide")
        for (const std::uint64_t seed : {1, 2, 3}) expect_right(op, test, rolled, seed);
    };
    for (const bool trans_b : {false, true}) {
      const TensorType w{DType::f16,
                         trans_b ? kernels::Shape{g.groups, g.n, g.k} : kernels::Shape{g.groups, g.k, g.n}};
      Case test{g.name + (trans_b ? ":tb:bias" : ""), {x, w, offsets}, {}, false};
      if (trans_b) {
        test.attrs = {{"trans_b", true}, {"bias", true}, {"dtype", std::string("f32")}};
        test.inputs.push_back({DType::f32, {g.groups, g.n}});
      }
      expect_groups_right("grouped_matmul", test);
    }
    expect_groups_right("grouped_outer", {g.name, {x, {DType::f16, {g.rows, g.n}}, offsets}, {}, false});
  }
}

struct Heads {
  std::string name;
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 16, dv = 0;
  bool causal = true;
  std::int64_t left = kernels::kUnlimited;
  double soft_cap = 0;
  bool segments = false, sink = false, slopes = false;
  DType dtype = DType::f16;
  std::map<std::string, std::int64_t> changed = {};
};

// Tiles of keys that end with the last key, one before and one behind it; heads of whole matrices and others; the options that
// kernels are compiled for.
const std::vector<Heads>& heads() {
  static const std::vector<Heads> all{
      {.name = "whole", .s = 64, .t = 64, .h = 2},
      {.name = "32 keys", .s = 33, .t = 65, .h = 2, .kv = 2, .changed = {{"keys", 32}}},
      {.name = "one subgroup", .s = 31, .t = 33, .causal = false, .changed = {{"subgroups", 1}}},
      {.name = "own rows in workgroup memory", .s = 33, .t = 40, .changed = {{"held", 0}}},
      {.name = "rolled", .s = 40, .t = 70, .h = 4, .kv = 2, .changed = {{"rolled", 1}, {"held", 0}}},
      {.name = "rolled, odd",
       .s = 23,
       .t = 29,
       .h = 2,
       .d = 19,
       .dv = 24,
       .soft_cap = 4,
       .changed = {{"rolled", 1}}},
      {.name = "rolled, 32 keys",
       .s = 33,
       .t = 65,
       .causal = false,
       .changed = {{"rolled", 1}, {"held", 0}, {"keys", 32}}},
      {.name = "window", .s = 70, .t = 70, .h = 2, .left = 20, .soft_cap = 4},
      {.name = "odd", .b = 2, .s = 23, .t = 29, .h = 3, .d = 19},
      {.name = "unlike", .s = 20, .t = 36, .d = 8, .dv = 24, .changed = {{"subgroups", 2}}},
      {.name = "documents",
       .b = 2,
       .s = 40,
       .t = 40,
       .h = 2,
       .segments = true,
       .sink = true,
       .slopes = true}};
  return all;
}

Case case_of(const Heads& s, bool backward) {
  const std::int64_t dv = s.dv > 0 ? s.dv : s.d;
  Case test{
      s.name,
      {{s.dtype, {s.b, s.s, s.h, s.d}}, {s.dtype, {s.b, s.t, s.kv, s.d}}, {s.dtype, {s.b, s.t, s.kv, dv}}},
      {},
      false};
  if (backward) {
    const TensorType o{s.dtype, {s.b, s.s, s.h, dv}};
    test.inputs.insert(test.inputs.end(), {o, {DType::f32, {s.b, s.h, s.s}}, o});
  }
  test.attrs.set("scale", 0.2);
  if (s.causal) test.attrs.set("causal", true);
  if (s.left < kernels::kUnlimited) test.attrs.set("left", s.left);
  if (s.soft_cap > 0) test.attrs.set("soft_cap", s.soft_cap);
  const auto take = [&](bool wanted, const char* flag, std::vector<TensorType> types) {
    if (!wanted) return;
    test.attrs.set(flag, true);
    test.inputs.insert(test.inputs.end(), types.begin(), types.end());
  };
  take(s.segments, "segments", {{DType::i32, {s.b, s.s}}, {DType::i32, {s.b, s.t}}});
  take(s.sink, "sink", {{DType::f32, {s.h}}});
  take(s.slopes, "slopes", {{DType::f32, {s.h}}});
  return test;
}

TEST_F(Cooperative, AttentionEndsAnywhere) {
  for (const Heads& s : heads()) expect_right("flash_attention", case_of(s, false), s.changed);
}

TEST_F(Cooperative, AttentionBackwardEndsAnywhere) {
  for (const Heads& s : heads()) expect_right("flash_attention_grad", case_of(s, true), s.changed);
}

}  // namespace
}  // namespace meshloom::tests
