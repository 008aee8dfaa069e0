// Attention backward by warpgroups on NVIDIA's tensor cores, on any OpenCL device (pretender.h).

#include "tests/kernels/matrix_units/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionPtxWgmmaGrad : public AttentionOnTensorCores {
 protected:
  AttentionPtxWgmmaGrad() : AttentionOnTensorCores("flash_attention_grad", "ptx_wgmma") {}

  // With heads of 64, which the variant takes; all but dropout.
  void expect_right_or_dropout(hal::Device& device, const Case& test, std::uint64_t seed) {
    expect_right_or_refused(device, with_heads(test, 64), seed, HasSubstr("drops no probabilities"));
  }
};

// Every option of the contract's cases.
TEST_F(AttentionPtxWgmmaGrad, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 20))
      expect_right_or_dropout(*device, narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed);
  EXPECT_GT(ran_, 0);
}

TEST_F(AttentionPtxWgmmaGrad, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(1, 177,
                   [&](const Case& test, std::uint64_t i) { expect_right_or_dropout(*device, test, i); });
}

// Lengths that end tiles and warpgroups early, groups of heads, more tiles than there is room for, in every tile.
TEST_F(AttentionPtxWgmmaGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_tiles_right(*device,
                       {{.s = 1, .t = 1, .dtype = dtype},
                        {.s = 67, .t = 129, .h = 2, .dtype = dtype},
                        {.b = 2, .s = 65, .t = 390, .dtype = dtype},
                        {.s = 390, .t = 63, .causal = false, .dtype = dtype}},
                       testing::SizeIs(4), dtype == DType::f16 ? 2 : 0);
}

TEST_F(AttentionPtxWgmmaGrad, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 7, 8, 9})
    expect_found(wrong, case_of({.s = 33, .t = 70, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

TEST_F(AttentionPtxWgmmaGrad, ProofsTellRightFromWrong) { expect_self_test_tells(9); }

TEST_F(AttentionPtxWgmmaGrad, OtherDevicesAndCallsAreRefused) {
  const hal::DeviceInfo info = open()->info();
  EXPECT_TRUE(fit(case_of({.s = 64, .t = 64, .dtype = DType::f16}), info).ok);
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 128}), info).reason, HasSubstr("these have 128 and 128"));
  expect_refused_by_other_gpus(case_of({}));
}

// No card has run it: ptx_mma, which takes whatever it takes, is asked before it.
TEST_F(AttentionPtxWgmmaGrad, OnlyARuleChoosesIt) {
  const auto variants = catalog_.variants(op_, "opencl");
  ASSERT_GE(variants.size(), 2u);
  EXPECT_EQ(variants[1], variant_);
  const CaseCall call(catalog_, op_, case_of({.s = 300, .t = 300}));
  EXPECT_TRUE(variants[0]->fit(call.view(), open()->info()).ok);
}

}  // namespace
}  // namespace meshloom::tests
