// Attention forward on the matrix units of Intel's GPUs, of both sizes, on any OpenCL device (pretender.h).
#include <string>

#include "tests/kernels/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionDpas : public AttentionOnTensorCores, public testing::WithParamInterface<std::int32_t> {
 protected:
  AttentionDpas() : AttentionOnTensorCores("flash_attention", "dpas", intel_gpu(GetParam())) {}

  // Dropout, and heads of other sizes.
  const testing::Matcher<std::string> refusals_ =
      testing::AnyOf(HasSubstr("drops no probabilities"), HasSubstr("eight features at a time"),
                     HasSubstr("do not fit the registers"));
};

TEST_P(AttentionDpas, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  int asked = 0;
  for (const Case& test : contract().cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      if ((!test.slow || slow_cases()) && has_turn(++seed, 11, GetParam() / 8)) {
        expect_right_or_refused(*device, narrow(test, dtype), seed, refusals_);
        ++asked;
      }
  EXPECT_GT(2 * ran_, asked);
}

TEST_P(AttentionDpas, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 77, [&](const Case& test, std::uint64_t i) {
    expect_right_or_refused(*device, test, i, refusals_);
  });
}

// Rows and keys that end with a tile, one before and one behind it, in every tile.
TEST_P(AttentionDpas, EveryTileEqualsTheReference) {
  expect_tiles_right(*open(),
                     {{.s = 129, .t = 129, .h = 2, .d = 64},
                      {.s = 1, .t = 65, .h = 2, .kv = 2, .d = 72, .dv = 40},
                      {.s = 17, .t = 33, .h = 3, .d = 24, .causal = false, .dtype = DType::f16},
                      {.b = 2, .s = 65, .t = 65, .h = 4, .kv = 2, .d = 128, .dtype = DType::f16},
                      {.s = 33, .t = 1, .d = 8, .dv = 16, .causal = false},
                      {.s = 64, .t = 64, .h = 2, .d = 80},
                      {.s = 31, .t = 48, .h = 2, .d = 96}},
                     testing::Not(testing::IsEmpty()), 0, 12);
}

TEST_P(AttentionDpas, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5})
    expect_found(wrong, case_of({.s = 20, .t = 40, .d = 16, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

// A driver is trusted when it has computed both dtypes.
TEST_P(AttentionDpas, ProofsTellRightFromWrong) {
  EXPECT_THAT(values_of({"AB_TYPE"}, expect_self_test_tells(2)), testing::ElementsAre("1 ", "2 "));
}

TEST_P(AttentionDpas, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  for (const std::int64_t d : {64, 80, 96, 128})
    EXPECT_EQ(fit(case_of({.s = 64, .t = 64, .d = d, .dtype = DType::f16}), info).reason, "") << d;
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 20}), info).reason, HasSubstr("eight features at a time, which heads of 20"));
  EXPECT_THAT(fit(case_of({.d = 256}), info).reason,
              HasSubstr("heads of 256 and 256 features do not fit the registers of a lane"));
  EXPECT_THAT(fit(narrow(case_named("dropout"), DType::bf16), info).reason,
              HasSubstr("drops no probabilities"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(fit(case_of({.d = 128}), info).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  info.name = "Intel(R) Iris(R) Xe Graphics";
  EXPECT_THAT(fit(case_of({}), info).reason,
              HasSubstr("cl_intel_subgroup_matrix_multiply_accumulate; this one is Intel(R) Iris(R) Xe"));
}

INSTANTIATE_TEST_SUITE_P(Lanes, AttentionDpas, testing::Values(8, 16),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

}  // namespace
}  // namespace meshloom::tests
