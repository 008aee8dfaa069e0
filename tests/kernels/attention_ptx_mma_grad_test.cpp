// Attention backward on NVIDIA's tensor cores, on any OpenCL device (pretender.h).

#include "tests/kernels/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionPtxMmaGrad : public AttentionOnTensorCores {
 protected:
  AttentionPtxMmaGrad() : AttentionOnTensorCores("flash_attention_grad") {}

  // Holds the call to the reference, unless it is one of those that the variant refuses.
  void expect_right_or_refused(hal::Device& device, const Case& test, std::uint64_t seed) const {
    const kernels::Fit answer = fit(test, device.info());
    EXPECT_EQ(answer.ok, !is_refused(test)) << test.name << ": " << answer.reason;
    if (answer.ok) expect_right(device, test, seed);
  }
  static bool is_refused(const Case& test) {
    const std::int64_t d = test.inputs[0].dim(3), dv = test.inputs[2].dim(3);
    return d % 8 != 0 || dv % 8 != 0 || d + dv > 256 || test.attrs.flag("rng_state");
  }
};

TEST_F(AttentionPtxMmaGrad, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases()) {
    ++seed;
    // By hand the cases of models take minutes.
    if (test.slow || !has_turn(seed, 8)) continue;
    expect_right_or_refused(*device, narrow(test, seed / 8 % 2 ? DType::bf16 : DType::f16), seed);
    if (slow_cases())
      expect_right_or_refused(*device, narrow(test, seed / 8 % 2 ? DType::f16 : DType::bf16), seed);
  }
}

TEST_F(AttentionPtxMmaGrad, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(4, 177,
                   [&](const Case& test, std::uint64_t i) { expect_right_or_refused(*device, test, i); });
}

// Lengths that end tiles and warps early, groups of heads, in every tile.
TEST_F(AttentionPtxMmaGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_tiles_right(*device,
                       {{.s = 1, .t = 1, .d = 16, .dtype = dtype},
                        {.b = 2, .s = 17, .t = 33, .h = 4, .kv = 2, .d = 24, .dv = 40, .dtype = dtype},
                        {.s = 65, .t = 65, .h = 3, .d = 24, .dtype = dtype, .soft_cap = 2},
                        {.s = 33, .t = 17, .h = 2, .kv = 2, .d = 128, .causal = false, .dtype = dtype}},
                       testing::Not(testing::IsEmpty()), dtype == DType::f16 ? 4 : 0);
}

TEST_F(AttentionPtxMmaGrad, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 7})
    expect_found(wrong, case_of({.s = 33, .t = 40, .h = 2, .d = 32, .dv = 16}));
}

// A driver is trusted when it has computed both dtypes.
TEST_F(AttentionPtxMmaGrad, ProofsTellRightFromWrong) {
  EXPECT_THAT(values_of({"AB_TYPE"}, expect_self_test_tells(7)), testing::ElementsAre("1 ", "2 "));
}

TEST_F(AttentionPtxMmaGrad, OtherDevicesAndDtypesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const AttentionCall call{.s = 64, .t = 64, .dtype = DType::f16};
  EXPECT_TRUE(fit(case_of(call), info).ok);
  EXPECT_TRUE(fit(case_of({.d = 128}), info).ok);
  EXPECT_EQ(catalog_.variants(op_, "opencl")[0], variant_);
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 20}), info).reason, HasSubstr("multiple of"));
  EXPECT_THAT(fit(case_of({.d = 256}), info).reason, HasSubstr("do not fit the registers"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(fit(case_of(call), info).reason, HasSubstr("4096 bytes of workgroup memory"));
  info.limits.matrix_shapes.clear();
  info.name = "Tesla T4";
  EXPECT_THAT(fit(case_of({}), info).reason, HasSubstr("Tesla T4"));
}

}  // namespace
}  // namespace meshloom::tests
