// What the tests of attention by ptx_mma and by dpas share, forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/matrix_units/attention_on_tensor_cores.h"

namespace meshloom::tests {

// A GPU with matrix units, and what the variant for it takes.
struct AttentionUnit {
  std::string name, variant;
  PretendedGpu gpu;
  // Of the units of one variant, which share what an ordinary run takes of cases.
  std::size_t number = 0, count = 1;
  // Ways to make the instructions wrong that must be found (mma.inc, dpas.inc), and the one that the self-test is asked about.
  std::vector<int> wrong;
  int wrong_in_self_test = 0;
  // Features of q and of v, of the widest heads that are taken.
  std::int64_t widest = 256;
  // Of both together, where that tells which of the contract's calls are taken; else 0.
  std::int64_t max_features = 0;
  // Of either. Wider ones are taken or refused, by what their tiles leave of the registers.
  std::int64_t max_head_dim = 256;
  // Where among the variants of OpenCL it is asked; a GPU without such instructions, and how it is refused.
  std::size_t place = 0;
  std::string other_gpu, refusal;
};
inline void PrintTo(const AttentionUnit& unit, std::ostream* out) { *out << unit.name; }

inline AttentionUnit nvidia_unit() {
  return {.name = "Nvidia",
          .variant = "ptx_mma",
          .gpu = nvidia_gpu(),
          .other_gpu = "Tesla T4",
          .refusal = "of compute capability 8.0 or more; this one is Tesla T4"};
}
inline AttentionUnit intel_unit(std::int32_t lanes) {
  return {.name = "IntelOf" + std::to_string(lanes),
          .variant = "dpas",
          .gpu = intel_gpu(lanes),
          .number = static_cast<std::size_t>(lanes / 8),
          .count = 2,
          .place = 2,
          .other_gpu = "Intel(R) Iris(R) Xe Graphics",
          .refusal = "cl_intel_subgroup_matrix_multiply_accumulate; this one is Intel(R) Iris(R) Xe"};
}

class AttentionOnUnit : public AttentionOnTensorCores, public testing::WithParamInterface<AttentionUnit> {
 protected:
  explicit AttentionOnUnit(std::string op)
      : AttentionOnTensorCores(std::move(op), GetParam().variant, GetParam().gpu) {}

  // Right, or refused for dropout or heads of other sizes.
  void expect_right_or_refused(hal::Device& device, const kernels::Case& test, std::uint64_t seed) {
    using testing::HasSubstr;
    const AttentionUnit& unit = GetParam();
    const std::int64_t d = test.inputs[0].dim(3), dv = test.inputs[2].dim(3);
    if (unit.max_features > 0 && std::max(d, dv) <= unit.max_head_dim) {
      const bool taken =
          d % 8 == 0 && dv % 8 == 0 && d + dv <= unit.max_features && !test.attrs.flag("rng_state");
      EXPECT_EQ(fit(test, device.info()).ok, taken) << test.name << ", heads of " << d << " and " << dv;
    }
    ++asked_;
    OnTensorCores::expect_right_or_refused(
        device, test, seed,
        testing::AnyOf(HasSubstr("drops no probabilities"), HasSubstr("eight features at a time"),
                       HasSubstr("do not fit the registers")));
  }
  void expect_random_calls_right(int count, std::uint64_t key) {
    const auto device = open();
    for_random_cases(count, key, [&](const kernels::Case& test, std::uint64_t i) {
      expect_right_or_refused(*device, test, i);
    });
  }
  // A driver is trusted when it has computed both dtypes.
  void expect_both_dtypes_in_self_test() const {
    EXPECT_THAT(values_of({"AB_TYPE"}, expect_self_test_tells(GetParam().wrong_in_self_test)),
                testing::ElementsAre("1 ", "2 "));
  }
  void expect_other_devices_and_calls_refused() const {
    using testing::HasSubstr;
    const AttentionUnit& unit = GetParam();
    hal::DeviceInfo info = open()->info();
    const auto reason = [&](const AttentionCall& call) { return fit(case_of(call), info).reason; };
    for (const std::int64_t d : {std::int64_t{64}, std::int64_t{80}, std::int64_t{96}, unit.widest})
      EXPECT_EQ(reason({.s = 64, .t = 64, .d = d, .dtype = hal::DType::f16}), "") << d;
    EXPECT_EQ(catalog_.variants(op_, "opencl").at(unit.place), variant_);
    EXPECT_THAT(reason({.dtype = hal::DType::f32}), HasSubstr("f16 and bf16 only"));
    EXPECT_THAT(reason({.d = 20}),
                HasSubstr("eight features at a time, which heads of 20 are no multiple of"));
    if (unit.widest < 256) {
      EXPECT_THAT(reason({.d = 256}),
                  HasSubstr("heads of 256 and 256 features do not fit the registers of a lane"));
    }
    EXPECT_THAT(fit(narrow(case_named("dropout"), hal::DType::bf16), info).reason,
                HasSubstr("drops no probabilities"));
    info.limits.max_local_bytes = 4096;
    EXPECT_THAT(reason({.d = 128}), HasSubstr("and 4096 bytes of workgroup memory"));
    info.limits.matrix_shapes.clear();
    info.name = unit.other_gpu;
    EXPECT_THAT(reason({}), HasSubstr(unit.refusal));
  }

  int asked_ = 0;  // calls
};

}  // namespace meshloom::tests
