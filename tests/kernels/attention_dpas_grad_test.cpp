// Attention backward on the matrix units of Intel's GPUs, of both sizes, on any OpenCL device (pretender.h).
#include <string>

#include "tests/kernels/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionDpasGrad : public AttentionOnTensorCores, public testing::WithParamInterface<std::int32_t> {
 protected:
  AttentionDpasGrad() : AttentionOnTensorCores("flash_attention_grad", "dpas", intel_gpu(GetParam())) {}

  // Dropout, and heads of other sizes.
  const testing::Matcher<std::string> refusals_ =
      testing::AnyOf(HasSubstr("drops no probabilities"), HasSubstr("eight features at a time"),
                     HasSubstr("do not fit the registers"));
};

TEST_P(AttentionDpasGrad, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  int asked = 0;
  for (const Case& test : contract().cases()) {
    ++seed;
    // By hand the cases of models take minutes.
    if (test.slow || !has_turn(seed, 16, GetParam() / 8)) continue;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!slow_cases() && (dtype == DType::bf16) == (seed / 16 % 2 == 0)) continue;
      expect_right_or_refused(*device, narrow(test, dtype), seed, refusals_);
      ++asked;
    }
  }
  EXPECT_GT(2 * ran_, asked);
}

TEST_P(AttentionDpasGrad, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(2, 177, [&](const Case& test, std::uint64_t i) {
    expect_right_or_refused(*device, test, i, refusals_);
  });
}

// Lengths that end tiles and subgroups early, groups of heads, in every tile.
TEST_P(AttentionDpasGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_tiles_right(*device,
                       {{.s = 1, .t = 1, .d = 16, .dtype = dtype},
                        {.b = 2, .s = 17, .t = 33, .h = 4, .kv = 2, .d = 24, .dv = 40, .dtype = dtype},
                        {.s = 65, .t = 65, .h = 3, .d = 24, .dtype = dtype, .soft_cap = 2},
                        {.s = 33, .t = 17, .h = 2, .kv = 2, .d = 64, .causal = false, .dtype = dtype},
                        {.s = 20, .t = 37, .h = 2, .d = 80, .dtype = dtype},
                        {.s = 17, .t = 17, .d = 72, .dv = 104, .dtype = dtype, .soft_cap = 3}},
                       testing::Not(testing::IsEmpty()), dtype == DType::f16 ? 4 : 0, 24);
}

TEST_P(AttentionDpasGrad, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5})
    expect_found(wrong, case_of({.s = 33, .t = 40, .h = 2, .d = 32, .dv = 16}));
}

// A driver is trusted when it has computed both dtypes.
TEST_P(AttentionDpasGrad, ProofsTellRightFromWrong) {
  EXPECT_THAT(values_of({"AB_TYPE"}, expect_self_test_tells(3)), testing::ElementsAre("1 ", "2 "));
}

TEST_P(AttentionDpasGrad, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  for (const std::int64_t d : {64, 80, 96, 128})
    EXPECT_EQ(fit(case_of({.s = 64, .t = 64, .d = d, .dtype = DType::f16}), info).reason, "") << d;
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 20}), info).reason, HasSubstr("eight features at a time, which heads of 20"));
  EXPECT_THAT(fit(case_of({.d = 256}), info).reason,
              HasSubstr("heads of 256 and 256 features do not fit the registers of a lane"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(fit(case_of({.d = 64}), info).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  info.name = "Intel(R) Iris(R) Xe Graphics";
  EXPECT_THAT(fit(case_of({}), info).reason,
              HasSubstr("cl_intel_subgroup_matrix_multiply_accumulate; this one is Intel(R) Iris(R) Xe"));
}

INSTANTIATE_TEST_SUITE_P(Lanes, AttentionDpasGrad, testing::Values(8, 16),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

}  // namespace
}  // namespace meshloom::tests
