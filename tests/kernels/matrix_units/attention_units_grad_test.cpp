// Attention backward on the matrix units of NVIDIA's and Intel's GPUs, on any OpenCL device (pretender.h).
#include <string>
#include <vector>

#include "tests/kernels/matrix_units/attention_units.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;

std::vector<AttentionUnit> backward_units() {
  std::vector<AttentionUnit> all{nvidia_unit(), intel_unit(8), intel_unit(16)};
  for (AttentionUnit& unit : all) {
    const bool nvidia = unit.variant == "ptx_mma";
    unit.wrong = nvidia ? std::vector{2, 3, 4, 5, 7} : std::vector{2, 3, 4, 5};
    unit.wrong_in_self_test = nvidia ? 7 : 3;
    unit.widest = 128;
    unit.max_features = 256;
    if (!nvidia) unit.max_head_dim = 128;
  }
  return all;
}

class AttentionUnitsGrad : public AttentionOnUnit {
 protected:
  AttentionUnitsGrad() : AttentionOnUnit("flash_attention_grad") {}
};

TEST_P(AttentionUnitsGrad, EqualsTheReference) {
  const auto device = open();
  const std::size_t among = 8 * GetParam().count;
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases()) {
    ++seed;
    // By hand the cases of models take minutes.
    if (test.slow || !has_turn(seed, among, GetParam().number)) continue;
    const DType first = seed / among % 2 ? DType::bf16 : DType::f16;
    for (const DType dtype : {DType::bf16, DType::f16})
      if (slow_cases() || dtype == first) expect_right_or_refused(*device, narrow(test, dtype), seed);
  }
  EXPECT_GT(2 * ran_, asked_);
}

TEST_P(AttentionUnitsGrad, RandomCallsEqualTheReference) {
  expect_random_calls_right(4 / static_cast<int>(GetParam().count), 177);
}

// Lengths that end tiles and subgroups early, groups of heads, in every tile.
TEST_P(AttentionUnitsGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_tiles_right(*device,
                       {{.s = 1, .t = 1, .d = 16, .dtype = dtype},
                        {.b = 2, .s = 17, .t = 33, .h = 4, .kv = 2, .d = 24, .dv = 40, .dtype = dtype},
                        {.s = 65, .t = 65, .h = 3, .d = 24, .dtype = dtype, .soft_cap = 2},
                        {.s = 33, .t = 17, .h = 2, .kv = 2, .d = 64, .causal = false, .dtype = dtype},
                        {.s = 20, .t = 37, .h = 2, .d = 80, .dtype = dtype},
                        {.s = 17, .t = 17, .d = 72, .dv = 104, .dtype = dtype, .soft_cap = 3},
                        {.s = 33, .t = 17, .h = 2, .kv = 2, .d = 128, .causal = false, .dtype = dtype}},
                       testing::Not(testing::IsEmpty()), dtype == DType::f16 ? 4 : 0, 24);
}

TEST_P(AttentionUnitsGrad, WrongInstructionsAreFound) {
  for (const int wrong : GetParam().wrong)
    expect_found(wrong, case_of({.s = 33, .t = 40, .h = 2, .d = 32, .dv = 16}));
}

TEST_P(AttentionUnitsGrad, ProofsTellRightFromWrong) { expect_both_dtypes_in_self_test(); }

TEST_P(AttentionUnitsGrad, OtherDevicesAndCallsAreRefused) { expect_other_devices_and_calls_refused(); }

INSTANTIATE_TEST_SUITE_P(Units, AttentionUnitsGrad, testing::ValuesIn(backward_units()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshloom::tests
