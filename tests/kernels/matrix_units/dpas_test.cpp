// Matmul on the matrix units of Intel's GPUs, of both sizes, on any OpenCL device (pretender.h).
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;

class Dpas : public OnTensorCores, public testing::WithParamInterface<std::int32_t> {
 protected:
  Dpas() : OnTensorCores("matmul", "dpas", intel_gpu(GetParam())) {}
};

TEST_P(Dpas, EqualsTheReference) { expect_products_right(); }

TEST_P(Dpas, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 77, [&](const Case& test, std::uint64_t i) { expect_right(*device, test, i); });
}

TEST_P(Dpas, EveryTileAndTransposeEqualsTheReference) {
  const auto extents = expect_product_tiles_right({"rows", "columns", "fm", "fn"}, 8, GetParam(), 8, 8);
  for (const auto& [bm, bn] :
       {std::pair(256, 128), std::pair(128, 256), std::pair(64, 64), std::pair(16, 64)})
    EXPECT_TRUE(extents.contains({bm, bn})) << bm << " x " << bn;
}

TEST_P(Dpas, WrongInstructionsAreFound) { expect_wrong_products_found(); }

TEST_P(Dpas, ProofsTellRightFromWrong) { expect_proofs_of_products(); }

TEST_P(Dpas, OtherDevicesAndDtypesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](DType dtype) { return fit(product(256, 512, 128, 2, dtype), info); };
  EXPECT_TRUE(answer(DType::f16).ok);
  EXPECT_THAT(answer(DType::f32).reason, HasSubstr("f16 and bf16 only"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(answer(DType::f16).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  info.name = "Intel(R) Iris(R) Xe Graphics";
  EXPECT_THAT(answer(DType::bf16).reason,
              HasSubstr("cl_intel_subgroup_matrix_multiply_accumulate; this one is Intel(R) Iris(R) Xe"));
}

INSTANTIATE_TEST_SUITE_P(Lanes, Dpas, testing::Values(8, 16),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

}  // namespace
}  // namespace meshloom::tests
