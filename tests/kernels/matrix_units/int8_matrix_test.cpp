// int8_matmul on the matrix units of NVIDIA's and Intel's GPUs, on any OpenCL device (pretender.h).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

struct Int8Unit {
  std::string name, variant;
  PretendedGpu gpu;
};
void PrintTo(const Int8Unit& unit, std::ostream* out) { *out << unit.name; }

class Int8OnMatrixUnits : public OnTensorCores, public testing::WithParamInterface<Int8Unit> {
 protected:
  Int8OnMatrixUnits() : OnTensorCores("int8_matmul", GetParam().variant, GetParam().gpu) {}

  static Case int8(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {"product", {{DType::i8, {m, k}}, {DType::f32, {m}}, {DType::i8, {n, k}}, {DType::f32, {n}}}, {}};
  }
};

TEST_P(Int8OnMatrixUnits, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow) expect_right(*device, test, ++seed);
}

TEST_P(Int8OnMatrixUnits, RandomCallsEqualTheReference) {
  const auto device = open();
  const auto from = static_cast<std::uint64_t>(fuzz_from());
  for (std::uint64_t i = from; i < from + static_cast<std::uint64_t>(fuzz_rounds(12)); ++i)
    expect_right(*device, contract().random_case({kernels::mix(i, 55)}), i);
}

// Rows of whole chunks of 16 bytes, of words, and of bytes; with and without whole steps of K.
TEST_P(Int8OnMatrixUnits, EveryTileEqualsTheReference) {
  const auto device = open();
  std::size_t turn = 0;
  for (const Case& test : {int8(264, 136, 192), int8(261, 133, 144), int8(131, 72, 100), int8(67, 133, 91)}) {
    const CaseCall call(catalog_, op_, test);
    const std::vector<kernels::Fit> all = variant_->alternatives(call.view(), device->info());
    EXPECT_THAT(all, testing::Not(testing::IsEmpty()));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (has_turn(i, 9, turn)) expect_right(*device, all[i], call);
    ++turn;
  }
}

// Deeper than floats would sum exactly.
TEST_P(Int8OnMatrixUnits, LongSumsAreExact) {
  const auto device = open();
  const CaseCall call(catalog_, op_, int8(40, 24, 4100));
  const kernels::Fit fit = variant_->fit(call.view(), device->info());
  ASSERT_TRUE(fit.ok) << fit.reason;
  expect_right(*device, fit, call);
}

TEST_P(Int8OnMatrixUnits, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5}) expect_found(wrong, int8(33, 40, 96));
}

TEST_P(Int8OnMatrixUnits, ProofsTellRightFromWrong) {
  const std::set<std::string> rows = values_of({"LOAD_NUMBERS"}, expect_self_test_tells(2));
  EXPECT_EQ(rows, (std::set<std::string>{"0 ", "4 ", "16 "}))
      << "rows of bytes, of words, and of whole chunks";
}

TEST_P(Int8OnMatrixUnits, OtherDevicesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const Case test = int8(256, 512, 128);
  EXPECT_TRUE(fit(test, info).ok);
  info.limits.max_local_bytes = 2048;
  EXPECT_THAT(fit(test, info).reason, HasSubstr("and 2048 bytes"));
  std::erase_if(info.limits.matrix_shapes,
                [](const hal::MatrixShape& shape) { return shape.in == DType::i8; });
  EXPECT_THAT(fit(test, info).reason, HasSubstr("needs an "));
}

INSTANTIATE_TEST_SUITE_P(Units, Int8OnMatrixUnits,
                         testing::Values(Int8Unit{"Nvidia", "ptx_mma", nvidia_gpu()},
                                         Int8Unit{"IntelOf8", "dpas", intel_gpu(8)},
                                         Int8Unit{"IntelOf16", "dpas", intel_gpu(16)}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshloom::tests
