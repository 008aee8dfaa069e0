// A test of a variant of OpenCL for a GPU's matrix units, NVIDIA's by default, held to the reference on a device that pretends to
// be one (pretender.h).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/self_test.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/matrix_units/pretender.h"

namespace meshloom::tests {

class OnTensorCores : public testing::Test {
 protected:
  explicit OnTensorCores(std::string op, std::string variant = "ptx_mma", PretendedGpu gpu = nvidia_gpu())
      : op_(std::move(op)), name_(std::move(variant)), gpu_(std::move(gpu)) {}

  // The largest tile's, and what the instructions take by hand.
  static constexpr std::int64_t kLocalBytes = 64 << 10;

  void SetUp() override {
    // Made by hand, the instructions of attention over 4096 keys take half a minute, and longer on a busy machine.
    ::setenv("MESHLOOM_WAIT_SECONDS", "0", 0);
    ::setenv("MESHLOOM_EXPERIMENTAL_KERNELS", "1", 1);
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    variant_ = catalog_.find(op_, "opencl", name_);
    if (!variant_) GTEST_SKIP() << "not built";
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == "opencl")
        for (const hal::DeviceInfo& info : found.devices)
          if (id_.empty() && info.limits.max_workgroup >= 256 &&
              (info.limits.max_local_bytes >= kLocalBytes || has_tensor_cores(info))) {
            id_ = info.id;
            by_hand_ = has_tensor_cores(info) ? 0 : 1;
          }
    if (id_.empty())
      GTEST_SKIP() << "no OpenCL device with workgroups of 256 and " << kLocalBytes << " bytes";
  }

  const kernels::Contract& contract() const { return catalog_.contract(op_); }
  // On such a GPU the instructions are its own.
  std::unique_ptr<hal::Device> open() const { return open(by_hand_); }
  std::unique_ptr<hal::Device> open(int by_hand) const {
    return hal::checked(std::make_unique<Pretender>(registry_.open(id_), by_hand, gpu_));
  }
  kernels::Fit fit(const kernels::Case& test, const hal::DeviceInfo& info) const {
    return variant_->fit(CaseCall(catalog_, op_, test).view(), info);
  }
  Outcome run(hal::Device& device, const kernels::Case& test, std::uint64_t seed) const {
    const CaseCall call(catalog_, op_, test);
    return run_variant(device, *variant_, variant_->fit(call.view(), device.info()), call, seed);
  }
  // With these parameters.
  void expect_right(hal::Device& device, const kernels::Fit& fit, const CaseCall& call) const {
    const Outcome outcome = run_variant(device, *variant_, fit, call, 3);
    EXPECT_TRUE(outcome.ran) << outcome.refusal;
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
  }
  void expect_right(hal::Device& device, const kernels::Case& test, std::uint64_t seed) const {
    const Outcome outcome = run(device, test, seed);
    EXPECT_TRUE(outcome.ran) << test.name << ": " << outcome.refusal;
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
  }
  // Right, or refused for such a reason. Counts those that ran in ran_.
  void expect_right_or_refused(hal::Device& device, const kernels::Case& test, std::uint64_t seed,
                               const testing::Matcher<std::string>& reason) {
    const Outcome outcome = run(device, test, seed);
    if (!outcome.ran) {
      EXPECT_THAT(outcome.refusal, reason) << test.name;
    }
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    ran_ += outcome.ran;
  }
  void expect_found(int wrong, const kernels::Case& test) const {
    const auto device = open(wrong);
    const Outcome outcome = run(*device, test, 5);
    EXPECT_TRUE(outcome.ran) << outcome.refusal;
    EXPECT_THAT(outcome.failures, testing::Not(testing::IsEmpty())) << wrong << ", " << test.name;
    EXPECT_GT(outcome.worst, 1) << "found by what it computes";
  }
  // What the self-test of this variant, and of no other, finds.
  std::vector<kernels::SelfTestFailure> self_test(hal::Device& device) const {
    kernels::Catalog alone;
    kernels::add_contracts(alone);
    alone.add(*variant_);
    return kernels::SelfTest{hal::DiskCache("")}.run(device, alone);
  }
  // The self-test trusts instructions that are right, and finds that these are not. Returns what it compiled of the former.
  std::vector<hal::ExecutableSpec> expect_self_test_tells(int wrong) const {
    const std::string variant = op_ + " " + name_;
    Pretender right(registry_.open(id_), 1, gpu_);
    EXPECT_THAT(self_test(right), testing::IsEmpty());
    EXPECT_EQ(right.info().self_test_results.at(variant), "");
    Pretender device(registry_.open(id_), wrong, gpu_);
    const std::vector<kernels::SelfTestFailure> found = self_test(device);
    EXPECT_THAT(found, testing::SizeIs(1));
    for (const kernels::SelfTestFailure& failure : found) {
      EXPECT_EQ(failure.variant, variant);
      EXPECT_THAT(failure.found, testing::HasSubstr("times what is allowed"));
    }
    return right.loaded();
  }
  // The values of these constants in each kernel that has them, one behind another.
  static std::set<std::string> values_of(const std::set<std::string>& names,
                                         const std::vector<hal::ExecutableSpec>& kernels) {
    std::set<std::string> seen;
    for (const hal::ExecutableSpec& kernel : kernels) {
      std::string values;
      for (const hal::Define& item : kernel.defines)
        if (names.contains(item.name)) values += item.value + " ";
      if (!values.empty()) seen.insert(values);
    }
    return seen;
  }
  // Instructions for warpgroups are those of compute capability 9.0 alone.
  void expect_refused_by_other_gpus(const kernels::Case& test) const {
    hal::DeviceInfo info = open()->info();
    info.name = "GeForce RTX 4090";
    info.features.push_back("compute-capability=8.9");
    EXPECT_THAT(fit(test, info).reason,
                testing::HasSubstr("of compute capability 9.0; this one is GeForce RTX 4090 with "
                                   "compute-capability=8.9"));
  }
  // A (m, k) B (k, n); transposes: 1 A is (k, m), 2 B is (n, k).
  static kernels::Case product(std::int64_t m, std::int64_t n, std::int64_t k, int transposes,
                               hal::DType dtype, const char* out = "f32") {
    const bool trans_a = transposes & 1, trans_b = transposes & 2;
    kernels::Case test{"product",
                       {{dtype, trans_a ? kernels::Shape{k, m} : kernels::Shape{m, k}},
                        {dtype, trans_b ? kernels::Shape{n, k} : kernels::Shape{k, n}}},
                       {{"dtype", out}},
                       false};
    if (trans_a) test.attrs.set("trans_a", true);
    if (trans_b) test.attrs.set("trans_b", true);
    return test;
  }
  // Of matmul. Cases of the contract, in bf16 and f16 in turns.
  void expect_products_right() const {
    const auto device = open();
    std::uint64_t seed = 0;
    for (const kernels::Case& test : contract().cases())
      if (!test.slow && has_turn(++seed, 3))
        expect_right(*device, narrow(test, seed % 2 ? hal::DType::bf16 : hal::DType::f16), seed);
  }
  // Rows read sixteen bytes at a time and one by one, whichever way they lie, in every tile, which are told apart by these parameters;
  // a run takes one of `among` each, and of `among_narrow` where rows are read one by one. Returns the tiles' rows and columns, for matrices
  // of m x n.
  std::set<std::pair<std::int64_t, std::int64_t>> expect_product_tiles_right(
      const std::vector<std::string>& names, std::int64_t m, std::int64_t n, std::size_t among,
      std::size_t among_narrow) const {
    const auto device = open();
    std::set<std::pair<std::int64_t, std::int64_t>> extents;
    std::size_t turn = 0;
    for (const int transposes : {0, 1, 2, 3})
      for (const bool wide : {true, false}) {
        const CaseCall call(catalog_, op_,
                            wide ? product(264, 136, 96, transposes, hal::DType::bf16)
                                 : product(261, 133, 91, transposes, hal::DType::f16));
        const std::vector<kernels::Fit> all = variant_->alternatives(call.view(), device->info());
        EXPECT_THAT(all, testing::Not(testing::IsEmpty()));
        std::set<std::vector<std::int64_t>> tiles;
        for (const kernels::Fit& fit : all) {
          std::vector<std::int64_t> values;
          for (const std::string& name : names) values.push_back(fit.params.at(name));
          if (!tiles.insert(values).second || !has_turn(tiles.size(), wide ? among : among_narrow, turn))
            continue;
          const auto& p = fit.params;
          extents.insert({p.at("rows") * p.at("fm") * m, p.at("columns") * p.at("fn") * n});
          expect_right(*device, fit, call);
        }
        ++turn;
      }
    return extents;
  }
  void expect_wrong_products_found() const {
    for (const int wrong : {2, 3, 4, 5})
      for (const int transposes : {0, 1, 2, 3})
        if (has_turn(transposes, 4, wrong))
          expect_found(wrong, product(33, 40, 48, transposes, hal::DType::bf16));
  }
  // A driver is trusted when it has computed both dtypes, and either way that each operand can lie.
  void expect_proofs_of_products() const {
    const std::set<std::string> operands =
        values_of({"AB_TYPE", "TRANS_A", "TRANS_B"}, expect_self_test_tells(2));
    for (const char* dtype : {"1", "2"})
      for (const char* transposes : {"0 .", "1 .", ". 0", ". 1"})
        EXPECT_THAT(operands,
                    testing::Contains(testing::MatchesRegex(std::string(dtype) + " " + transposes + " ")));
  }
  // Calls check(case, number) for random cases, in bf16 and f16 in turns; `count` where the environment does not say how many.
  template <class Check>
  void for_random_cases(int count, std::uint64_t seed, const Check& check) const {
    const auto from = static_cast<std::uint64_t>(fuzz_from());
    const auto rounds = static_cast<std::uint64_t>(fuzz_rounds(count));
    for (std::uint64_t i = from; i < from + rounds; ++i)
      check(
          narrow(contract().random_case({kernels::mix(i, seed)}), i % 2 ? hal::DType::bf16 : hal::DType::f16),
          i);
  }
  // The case with 16-bit floats, if it does not have them.
  kernels::Case narrow(const kernels::Case& test, hal::DType dtype) const {
    return kernels::to_low_precision(contract(), test, dtype).value_or(test);
  }
  // Each kernel takes seconds to compile here: of `count` that go together a run takes one, a full run all.
  static bool has_turn(std::size_t which, std::size_t count, std::size_t turn = 0) {
    return slow_cases() || which % count == turn % count;
  }

  bool has_tensor_cores(const hal::DeviceInfo& info) const {
    const auto& shapes = info.limits.matrix_shapes;
    return std::find(shapes.begin(), shapes.end(), gpu_.matrix_shapes.front()) != shapes.end();
  }

  const std::string op_, name_;
  const PretendedGpu gpu_;
  int by_hand_ = 1;
  kernels::Catalog catalog_;
  hal::Registry registry_;
  const kernels::Variant* variant_ = nullptr;
  std::string id_;
  int ran_ = 0;  // calls
};

}  // namespace meshloom::tests
