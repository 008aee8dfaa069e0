// Attention forward on the matrix units of NVIDIA's and Intel's GPUs, on any OpenCL device (pretender.h).
#include <string>
#include <vector>

#include "tests/kernels/matrix_units/attention_units.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;

std::vector<AttentionUnit> forward_units() {
  std::vector<AttentionUnit> all{nvidia_unit(), intel_unit(8), intel_unit(16)};
  for (AttentionUnit& unit : all) {
    const bool nvidia = unit.variant == "ptx_mma";
    unit.wrong = nvidia ? std::vector{2, 3, 4, 5, 6, 7} : std::vector{2, 3, 4, 5};
    unit.wrong_in_self_test = nvidia ? 6 : 2;
    unit.widest = nvidia ? 256 : 128;
  }
  return all;
}

class AttentionUnits : public AttentionOnUnit {
 protected:
  AttentionUnits() : AttentionOnUnit("flash_attention") {}
};

TEST_P(AttentionUnits, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      if ((!test.slow || slow_cases()) && has_turn(++seed, 11, GetParam().number))
        expect_right_or_refused(*device, narrow(test, dtype), seed);
  EXPECT_GT(2 * ran_, asked_);
}

TEST_P(AttentionUnits, RandomCallsEqualTheReference) { expect_random_calls_right(8, 77); }

// Rows and keys that end with a tile, one before and one behind it, in every tile.
TEST_P(AttentionUnits, EveryTileEqualsTheReference) {
  expect_tiles_right(*open(),
                     {{.s = 129, .t = 129, .h = 2, .d = 64},
                      {.s = 1, .t = 65, .h = 2, .kv = 2, .d = 72, .dv = 40},
                      {.s = 17, .t = 33, .h = 3, .d = 24, .causal = false, .dtype = DType::f16},
                      {.b = 2, .s = 65, .t = 65, .h = 4, .kv = 2, .d = 128, .dtype = DType::f16},
                      {.s = 33, .t = 1, .d = 8, .dv = 16, .causal = false},
                      {.s = 64, .t = 64, .h = 2, .d = 80},
                      {.s = 31, .t = 48, .h = 2, .d = 96},
                      {.s = 64, .t = 64, .h = 2, .d = 64},
                      {.s = 31, .t = 48, .h = 2, .d = GetParam().widest}},
                     testing::Not(testing::IsEmpty()), 0, 12);
}

TEST_P(AttentionUnits, WrongInstructionsAreFound) {
  for (const int wrong : GetParam().wrong)
    expect_found(wrong, case_of({.s = 20, .t = 40, .d = 16, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

TEST_P(AttentionUnits, ProofsTellRightFromWrong) { expect_both_dtypes_in_self_test(); }

TEST_P(AttentionUnits, OtherDevicesAndCallsAreRefused) { expect_other_devices_and_calls_refused(); }

INSTANTIATE_TEST_SUITE_P(Units, AttentionUnits, testing::ValuesIn(forward_units()),
                         [](const auto& info) { return info.param.name; });

class AttentionPtxMma : public AttentionOnTensorCores {
 protected:
  AttentionPtxMma() : AttentionOnTensorCores("flash_attention") {}
};

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
