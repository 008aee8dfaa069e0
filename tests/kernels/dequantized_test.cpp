// Products with quantized weights on matrix units, on any OpenCL device (pretender.h).
#include <cstdint>
#include <memory>
#include <string>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::AnyOf;
using testing::HasSubstr;

struct QuantizedUnit {
  std::string op, variant;
  PretendedGpu gpu;
};

class Dequantized : public OnTensorCores, public testing::WithParamInterface<QuantizedUnit> {
 protected:
  Dequantized() : OnTensorCores(GetParam().op, GetParam().variant, GetParam().gpu) {}

  const testing::Matcher<std::string> refusals_ = AnyOf(
      HasSubstr("at least 64 rows"), HasSubstr("eight weights at a time"), HasSubstr("not rounded to int8"));
};

TEST_P(Dequantized, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow || slow_cases()) {
      ++seed;
      expect_right_or_refused(*device, narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed, refusals_);
    }
  EXPECT_GE(ran_, 4);
}

TEST_P(Dequantized, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(10, 79, [&](const Case& test, std::uint64_t i) {
    expect_right_or_refused(*device, test, i, refusals_);
  });
}

TEST_P(Dequantized, WrongInstructionsAreFoundBySelfTests) {
  EXPECT_EQ(values_of({"AB_TYPE"}, expect_self_test_tells(2)).size(), 2U) << "bf16 and f16";
}

TEST_P(Dequantized, OtherCallsAreRefused) {
  const hal::DeviceInfo info = open()->info();
  for (const Case& test : contract().cases())
    if (!test.slow) {
      EXPECT_THAT(fit(test, info).reason, HasSubstr("takes 16-bit floats only, not f32")) << test.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Units, Dequantized,
                         testing::Values(QuantizedUnit{"nf4_matmul", "dpas", intel_gpu(8)},
                                         QuantizedUnit{"nf4_matmul", "ptx_mma", nvidia_gpu()},
                                         QuantizedUnit{"block_quantized_matmul", "dpas", intel_gpu(16)},
                                         QuantizedUnit{"block_quantized_matmul", "ptx_mma", nvidia_gpu()}),
                         [](const auto& info) { return info.param.op + "_" + info.param.variant; });

}  // namespace
}  // namespace meshloom::tests
