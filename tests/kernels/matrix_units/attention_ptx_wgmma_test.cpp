// Attention forward by warpgroups on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/matrix_units/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionPtxWgmma : public AttentionOnTensorCores {
 protected:
  AttentionPtxWgmma() : AttentionOnTensorCores("flash_attention", "ptx_wgmma") {}

  // All but dropout.
  void expect_right_or_dropout(hal::Device& device, const Case& test, std::uint64_t seed) {
    expect_right_or_refused(device, test, seed, HasSubstr("drops no probabilities"));
  }
};

// Every option of the contract's cases.
TEST_F(AttentionPtxWgmma, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 14))  // by hand the cases of models take minutes
      expect_right_or_dropout(
          *device, with_heads(narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed % 4 < 3 ? 64 : 128),
          seed);
  EXPECT_GT(ran_, 0);
}

TEST_F(AttentionPtxWgmma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(1, 177, [&](const Case& test, std::uint64_t i) {
    expect_right_or_dropout(*device, with_heads(test, i % 3 ? 64 : 128), i);
  });
}

// Rows and keys that end with a tile, one before and one behind it, and more tiles than there is room for, in every tile.
TEST_F(AttentionPtxWgmma, EveryTileEqualsTheReference) {
  const auto device = open();
  std::vector<kernels::Fit> ran =
      expect_tiles_right(*device,
                         {{.s = 193, .t = 193, .h = 2},
                          {.s = 1, .t = 65, .h = 2, .kv = 2},
                          {.s = 65, .t = 450, .causal = false, .dtype = DType::f16},
                          {.b = 2, .s = 64, .t = 64, .h = 4, .kv = 2, .dtype = DType::f16},
                          {.s = 33, .t = 1, .causal = false}},
                         testing::SizeIs(4));
  for (const kernels::Fit& fit : expect_tiles_right(
           *device,
           {{.s = 129, .t = 400, .h = 2, .d = 128}, {.s = 63, .t = 127, .d = 128, .dtype = DType::f16}},
           testing::SizeIs(2)))
    ran.push_back(fit);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const kernels::Fit& fit : ran) seen.insert({fit.params.at("warps"), fit.params.at("streamed")});
  EXPECT_GE(seen.size(), 3u);
}

TEST_F(AttentionPtxWgmma, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 6, 7, 8, 9})
    expect_found(
        wrong,
        case_of(
            {.s = 20, .t = 70, .d = wrong == 9 ? 128 : 64, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

TEST_F(AttentionPtxWgmma, ProofsTellRightFromWrong) {
  EXPECT_THAT(values_of({"AB_TYPE", "D"}, expect_self_test_tells(3)),
              testing::IsSupersetOf({"1 64 ", "2 64 "}));
}

TEST_F(AttentionPtxWgmma, OtherDevicesAndCallsAreRefused) {
  const hal::DeviceInfo info = open()->info();
  EXPECT_TRUE(fit(case_of({.s = 64, .t = 64, .dtype = DType::f16}), info).ok);
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 96}), info).reason, HasSubstr("heads of 64 or of 128 features"));
  EXPECT_THAT(fit(case_of({.dv = 128}), info).reason, HasSubstr("these have 64 and 128"));
  EXPECT_THAT(fit(with_heads(narrow(case_named("dropout"), DType::bf16), 64), info).reason,
              HasSubstr("drops no probabilities"));
  expect_refused_by_other_gpus(case_of({}));
}

// No card has run it: ptx_mma, which takes whatever it takes, is asked before it.
TEST_F(AttentionPtxWgmma, OnlyARuleChoosesIt) {
  const auto variants = catalog_.variants(op_, "opencl");
  ASSERT_GE(variants.size(), 2u);
  EXPECT_EQ(variants[1], variant_);
  const hal::DeviceInfo info = open()->info();
  for (const std::int64_t d : {64, 128}) {
    const CaseCall call(catalog_, op_, case_of({.s = 300, .t = 300, .d = d}));
    EXPECT_TRUE(variant_->fit(call.view(), info).ok);
    EXPECT_TRUE(variants[0]->fit(call.view(), info).ok);
  }
}

}  // namespace
}  // namespace meshloom::tests
