// Matmul on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
#include <memory>
#include <string>
#include <utility>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using testing::HasSubstr;
using testing::SizeIs;

class PtxMma : public OnTensorCores {
 protected:
  PtxMma() : OnTensorCores("matmul") {}
};

TEST_F(PtxMma, EqualsTheReference) { expect_products_right(); }

TEST_F(PtxMma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 99, [&](const Case& test, std::uint64_t i) { expect_right(*device, test, i); });
}

TEST_F(PtxMma, EveryTileAndTransposeEqualsTheReference) {
  const auto extents =
      expect_product_tiles_right({"rows", "columns", "fm", "fn", "bk", "async"}, 16, 8, 11, 8);
  for (const auto& [bm, bn] :
       {std::pair(256, 128), std::pair(128, 256), std::pair(128, 128), std::pair(32, 32)})
    EXPECT_TRUE(extents.contains({bm, bn})) << bm << " x " << bn;
}

TEST_F(PtxMma, WrongInstructionsAreFound) { expect_wrong_products_found(); }

TEST_F(PtxMma, ProofsTellRightFromWrong) { expect_proofs_of_products(); }

TEST_F(PtxMma, ACompilerThatDoesNotTakePtxIsNotTrusted) {
  const auto device = std::make_unique<Pretender>(registry_.open(id_), 0);
  if (device->inner().info().vendor.find("NVIDIA") != std::string::npos) GTEST_SKIP() << "it does";
  const auto found = self_test(*device);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].found, HasSubstr("must compile"));
}

TEST_F(PtxMma, OtherDevicesAndDtypesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](DType dtype) { return fit(product(256, 512, 128, 2, dtype), info); };
  EXPECT_TRUE(answer(DType::f16).ok);
  EXPECT_EQ(catalog_.variants("matmul", "opencl")[2], variant_) << "only few_rows and ptx_wgmma go before it";
  EXPECT_THAT(answer(DType::f32).reason, HasSubstr("f16 and bf16 only"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(answer(DType::f16).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  info.name = "Tesla T4";
  info.features.push_back("compute-capability=7.5");
  EXPECT_THAT(
      answer(DType::bf16).reason,
      HasSubstr("of compute capability 8.0 or more; this one is Tesla T4 with compute-capability=7.5"));
}

}  // namespace
}  // namespace meshloom::tests
