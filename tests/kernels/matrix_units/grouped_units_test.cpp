// Products by group on the matrix units of NVIDIA's and Intel's GPUs, on any OpenCL device (pretender.h).
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using kernels::Fit;
using kernels::HostTensor;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct GroupedUnit {
  std::string name, op, variant;
  PretendedGpu gpu;
};
void PrintTo(const GroupedUnit& unit, std::ostream* out) { *out << unit.name; }
std::vector<GroupedUnit> units() {
  std::vector<GroupedUnit> all;
  for (const std::string op : {"grouped_matmul", "grouped_outer"}) {
    all.push_back({op + "_mma", op, "ptx_mma", nvidia_gpu()});
    all.push_back({op + "_wgmma", op, "ptx_wgmma", nvidia_gpu()});
    for (const std::int32_t lanes : {8, 16})
      all.push_back({op + "_dpas_of_" + std::to_string(lanes), op, "dpas", intel_gpu(lanes)});
  }
  return all;
}

// Rows of the groups, one after another; those of no group follow.
struct Rows {
  std::string name;
  std::vector<std::int64_t> of_groups;
  std::int64_t of_none = 0;
};
std::vector<Rows> all_rows() {
  return {{"one", {1}},
          {"none at all", {0, 0, 0}, 5},
          {"empty first and last", {0, 37, 0, 0, 19, 0}},
          {"one row each", {1, 1, 1, 1, 1}},
          {"all in one", {0, 0, 150, 0}},
          {"behind the last", {33, 40}, 150},
          {"ends of tiles", {16, 64, 128, 15, 1}},
          {"beside ends of tiles", {17, 63, 127, 129}, 1}};
}

class GroupedUnits : public OnTensorCores, public testing::WithParamInterface<GroupedUnit> {
 protected:
  GroupedUnits() : OnTensorCores(GetParam().op, GetParam().variant, GetParam().gpu) {}

  bool is_outer() const { return op_ == "grouped_outer"; }
  // Of grouped_outer, k columns of the other factor.
  Case products(const Rows& rows, std::int64_t n, std::int64_t k, bool trans_b, bool bias,
                DType dtype) const {
    const auto groups = static_cast<std::int64_t>(rows.of_groups.size());
    const std::int64_t count = std::accumulate(rows.of_groups.begin(), rows.of_groups.end(), rows.of_none);
    Case test{rows.name, {{dtype, {count, k}}}, {}, false};
    if (is_outer())
      test.inputs.push_back({dtype, {count, n}});
    else
      test.inputs.push_back({dtype, trans_b ? kernels::Shape{groups, n, k} : kernels::Shape{groups, k, n}});
    test.inputs.push_back({DType::i32, {groups + 1}});
    if (is_outer()) {
      if (bias) test.attrs.set("dtype", std::string("f32"));
      return test;
    }
    if (trans_b) test.attrs.set("trans_b", true);
    if (bias) {
      test.attrs.set("bias", true);
      test.inputs.push_back({DType::f32, {groups, n}});
    }
    return test;
  }
  // The case's inputs, with these rows.
  std::vector<HostTensor> inputs_of(const CaseCall& call, const Rows& rows) const {
    std::vector<HostTensor> inputs = kernels::make_inputs(call.contract(), call.view(), 11);
    auto* offsets = inputs[2].as<std::int32_t>();
    offsets[0] = 0;
    for (std::size_t e = 0; e < rows.of_groups.size(); ++e)
      offsets[e + 1] = offsets[e] + static_cast<std::int32_t>(rows.of_groups[e]);
    return inputs;
  }
  Outcome run_rows(hal::Device& device, const Fit& fit, const CaseCall& call, const Rows& rows) const {
    const std::vector<HostTensor> inputs = inputs_of(call, rows);
    return run_variant(device, *variant_, fit, call, inputs,
                       reference_outputs(call.contract(), call.view(), inputs));
  }
  void expect_rows_right(hal::Device& device, const Fit& fit, const CaseCall& call, const Rows& rows) const {
    ASSERT_TRUE(fit.ok) << rows.name << ": " << fit.reason;
    const Outcome outcome = run_rows(device, fit, call, rows);
    EXPECT_TRUE(outcome.ran) << rows.name << ": " << outcome.refusal;
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << rows.name << ": " << failure;
  }
};

TEST_P(GroupedUnits, EqualTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 3))
      expect_right_or_refused(*device, narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed,
                              HasSubstr("multiples of 8"));
  EXPECT_GT(ran_, 0);
}

TEST_P(GroupedUnits, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(3, 55, [&](const Case& test, std::uint64_t i) {
    expect_right_or_refused(*device, test, i, HasSubstr("multiples of 8"));
  });
}

// The same few kernels for all of them: how rows are divided is data.
TEST_P(GroupedUnits, GroupsHaveAnyNumberOfRows) {
  const auto device = open();
  for (const bool trans_b : {false, true}) {
    if (trans_b && is_outer()) continue;
    for (const Rows& rows : all_rows()) {
      const CaseCall call(catalog_, op_, products(rows, 72, 40, trans_b, trans_b, DType::bf16));
      expect_rows_right(*device, variant_->fit(call.view(), device->info()), call, rows);
    }
  }
}

// Rows read sixteen bytes at a time and one by one, steps of K that end in a step and that do not, either dtype of C.
TEST_P(GroupedUnits, EveryTileEqualsTheReference) {
  const auto device = open();
  const Rows rows{"tiles", {70, 0, 133, 1, 260}, 9};
  const std::size_t among = GetParam().variant == "ptx_mma" ? 41 : 17;
  std::size_t turn = 0;
  for (const bool wide : {true, false})
    for (const bool trans_b : {false, true}) {
      ++turn;
      if (trans_b && is_outer()) continue;
      const CaseCall call(catalog_, op_,
                          wide ? products(rows, 136, 192, trans_b, turn % 2, DType::bf16)
                               : products(rows, 133, 91, trans_b, true, DType::f16));
      const std::vector<Fit> all = variant_->alternatives(call.view(), device->info());
      if (!wide && GetParam().variant == "ptx_wgmma") {
        EXPECT_THAT(all, IsEmpty());
        continue;
      }
      ASSERT_THAT(all, Not(IsEmpty()));
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_FALSE(all[i].params.contains("parts")) << "groups are not split";
        if (has_turn(i, among, turn)) expect_rows_right(*device, all[i], call, rows);
      }
    }
}

TEST_P(GroupedUnits, WrongInstructionsAreFound) {
  const Rows rows{"wrong", {33, 15}};
  const CaseCall call(catalog_, op_, products(rows, 40, 48, true, false, DType::bf16));
  const auto device = open(2);
  const Outcome outcome = run_rows(*device, variant_->fit(call.view(), device->info()), call, rows);
  EXPECT_TRUE(outcome.ran) << outcome.refusal;
  EXPECT_THAT(outcome.failures, Not(IsEmpty()));
  EXPECT_GT(outcome.worst, 1) << "found by what it computes";
}

TEST_P(GroupedUnits, ProofsTellRightFromWrong) { expect_self_test_tells(2); }

TEST_P(GroupedUnits, GoBeforeF32AndRefuseIt) {
  const auto variants = catalog_.variants(op_, "opencl");
  const auto place = [&](const std::string& name) {
    return std::find_if(variants.begin(), variants.end(),
                        [&](const kernels::Variant* variant) { return variant->name == name; });
  };
  EXPECT_LT(place(name_), place("gpu_tile"));
  const hal::DeviceInfo info = open()->info();
  const Rows rows{"rows", {512, 512}};
  EXPECT_TRUE(fit(products(rows, 512, 512, false, false, DType::f16), info).ok);
  EXPECT_THAT(fit(products(rows, 512, 512, false, false, DType::f32), info).reason,
              HasSubstr("f16 and bf16 only"));
}

INSTANTIATE_TEST_SUITE_P(Units, GroupedUnits, testing::ValuesIn(units()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshloom::tests
