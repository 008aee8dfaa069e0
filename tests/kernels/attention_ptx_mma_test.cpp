// Attention forward on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
#include <string>

#include "tests/kernels/attention_on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class AttentionPtxMma : public AttentionOnTensorCores {
 protected:
  AttentionPtxMma() : AttentionOnTensorCores("flash_attention") {}

  // Dropout, and heads of other sizes.
  const testing::Matcher<std::string> refusals_ =
      testing::AnyOf(HasSubstr("drops no probabilities"), HasSubstr("eight features at a time"),
                     HasSubstr("do not fit the registers"));
};

TEST_F(AttentionPtxMma, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  int asked = 0;
  for (const Case& test : contract().cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      if ((!test.slow || slow_cases()) && has_turn(++seed, 11)) {
        expect_right_or_refused(*device, narrow(test, dtype), seed, refusals_);
        ++asked;
      }
  EXPECT_GT(2 * ran_, asked);
}

TEST_F(AttentionPtxMma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 77, [&](const Case& test, std::uint64_t i) {
    expect_right_or_refused(*device, test, i, refusals_);
  });
}

// Rows and keys that end with a tile, one before and one behind it, in every tile.
TEST_F(AttentionPtxMma, EveryTileEqualsTheReference) {
  expect_tiles_right(*open(),
                     {{.s = 129, .t = 129, .h = 2, .d = 64},
                      {.s = 1, .t = 65, .h = 2, .kv = 2, .d = 72, .dv = 40},
                      {.s = 17, .t = 33, .h = 3, .d = 24, .causal = false, .dtype = DType::f16},
                      {.b = 2, .s = 65, .t = 65, .h = 4, .kv = 2, .d = 128, .dtype = DType::f16},
                      {.s = 33, .t = 1, .d = 8, .dv = 16, .causal = false},
                      {.s = 64, .t = 64, .h = 2, .d = 64},
                      {.s = 31, .t = 48, .h = 2, .d = 256}},
                     testing::Not(testing::IsEmpty()), 0, 12);
}

TEST_F(AttentionPtxMma, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 6, 7})
    expect_found(wrong, case_of({.s = 20, .t = 40, .d = 16, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

// A driver is trusted when it has computed both dtypes.
TEST_F(AttentionPtxMma, ProofsTellRightFromWrong) {
  EXPECT_THAT(values_of({"AB_TYPE"}, expect_self_test_tells(6)), testing::ElementsAre("1 ", "2 "));
}

TEST_F(AttentionPtxMma, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  EXPECT_TRUE(fit(case_of({.s = 64, .t = 64, .dtype = DType::f16}), info).ok);
  EXPECT_EQ(catalog_.variants(op_, "opencl")[0], variant_);
  EXPECT_THAT(fit(case_of({.dtype = DType::f32}), info).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(fit(case_of({.d = 20}), info).reason, HasSubstr("eight features at a time, which heads of 20"));
  EXPECT_THAT(fit(narrow(case_named("dropout"), DType::bf16), info).reason,
              HasSubstr("drops no probabilities"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(fit(case_of({.d = 128}), info).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  EXPECT_THAT(fit(case_of({}), info).reason, HasSubstr("compute capability 8.0 or more"));
}

// Few workgroups would leave most of the device idle.
TEST_F(AttentionPtxMma, ShortSequencesGetSmallTiles) {
  const hal::DeviceInfo info = open()->info();
  const auto rows = [&](const AttentionCall& call) {
    const auto params = fit(case_of(call), info).params;
    return params.at("warps") * params.at("row_matrices") * 16;
  };
  EXPECT_EQ(rows({.b = 4, .s = 512, .t = 512, .h = 9, .kv = 3}), 64);
  EXPECT_EQ(rows({.b = 4, .s = 2048, .t = 2048, .h = 32, .kv = 8}), 128);
  EXPECT_EQ(rows({.b = 4, .s = 1, .t = 2048, .h = 32, .kv = 8}), 16);
}

}  // namespace
}  // namespace meshloom::tests
