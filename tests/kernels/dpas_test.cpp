// Matmul on the matrix units of Intel's GPUs, of both sizes, on any OpenCL device (pretender.h).
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using kernels::Fit;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Dpas : public OnTensorCores, public testing::WithParamInterface<std::int32_t> {
 protected:
  Dpas() : OnTensorCores("matmul", "dpas", intel_gpu(GetParam())) {}
};

TEST_P(Dpas, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 3))
      expect_right(*device, narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed);
}

TEST_P(Dpas, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 77, [&](const Case& test, std::uint64_t i) { expect_right(*device, test, i); });
}

// Rows read sixteen bytes at a time and one by one, whichever way they lie, in every tile.
TEST_P(Dpas, EveryTileAndTransposeEqualsTheReference) {
  const auto device = open();
  std::set<std::pair<std::int64_t, std::int64_t>> extents;
  std::size_t turn = 0;
  for (const int transposes : {0, 1, 2, 3})
    for (const bool wide : {true, false}) {
      const Case test = wide ? product(264, 136, 96, transposes, DType::bf16)
                             : product(261, 133, 91, transposes, DType::f16);
      const CaseCall call(catalog_, "matmul", test);
      const std::vector<Fit> all = variant_->alternatives(call.view(), device->info());
      ASSERT_THAT(all, Not(IsEmpty()));
      std::set<std::vector<std::int64_t>> tiles;
      for (const Fit& fit : all) {
        const auto& p = fit.params;
        if (!tiles.insert({p.at("rows"), p.at("columns"), p.at("fm"), p.at("fn")}).second) continue;
        if (!has_turn(tiles.size(), 8, turn)) continue;
        extents.insert({p.at("rows") * p.at("fm") * 8, p.at("columns") * p.at("fn") * GetParam()});
        expect_right(*device, fit, call);
      }
      ++turn;
    }
  for (const auto& [bm, bn] :
       {std::pair(256, 128), std::pair(128, 256), std::pair(64, 64), std::pair(16, 64)})
    EXPECT_TRUE(extents.contains({bm, bn})) << bm << " x " << bn;
}

TEST_P(Dpas, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5})
    for (const int transposes : {0, 1, 2, 3})
      if (has_turn(transposes, 4, wrong)) expect_found(wrong, product(33, 40, 48, transposes, DType::bf16));
}

// A driver is trusted when it has computed both dtypes, and either way that each operand can lie.
TEST_P(Dpas, ProofsTellRightFromWrong) {
  const std::set<std::string> operands =
      values_of({"AB_TYPE", "TRANS_A", "TRANS_B"}, expect_self_test_tells(2));
  for (const char* dtype : {"1", "2"})
    for (const char* transposes : {"0 .", "1 .", ". 0", ". 1"})
      EXPECT_THAT(operands, Contains(testing::MatchesRegex(std::string(dtype) + " " + transposes + " ")));
}

TEST_P(Dpas, OtherDevicesAndDtypesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](DType dtype) { return fit(product(256, 512, 128, 2, dtype), info); };
  EXPECT_TRUE(answer(DType::f16).ok);
  EXPECT_THAT(answer(DType::f32).reason, HasSubstr("f16 and bf16 only"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(answer(DType::f16).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  info.name = "Intel(R) Iris(R) Xe Graphics";
  EXPECT_THAT(answer(DType::bf16).reason,
              HasSubstr("cl_intel_subgroup_matrix_multiply_accumulate; this one is Intel(R) Iris(R) Xe"));
}

INSTANTIATE_TEST_SUITE_P(Lanes, Dpas, testing::Values(8, 16),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

}  // namespace
}  // namespace meshloom::tests
