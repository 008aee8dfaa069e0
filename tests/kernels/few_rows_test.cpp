// Matmuls of a few rows go to the variant that reads B once, and others do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using testing::HasSubstr;

class FewRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    variant_ = catalog_.find("matmul", GetParam(), "few_rows");
    if (!variant_) GTEST_SKIP() << "not built";
  }

  kernels::Fit fit(const kernels::Case& test, const hal::DeviceInfo& device) const {
    return variant_->fit(CaseCall(catalog_, "matmul", test).view(), device);
  }
  kernels::Fit fit(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_b, DType dtype,
                   const hal::DeviceInfo& device) const {
    kernels::Case test{
        "", {{dtype, {m, k}}, {dtype, trans_b ? kernels::Shape{n, k} : kernels::Shape{k, n}}}, {}};
    if (trans_b) test.attrs.set("trans_b", true);
    return fit(test, device);
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  const kernels::Variant* variant_ = nullptr;
};

TEST_P(FewRows, TakeTokensTimesAWeight) {
  for (const hal::BackendDevices& found : registry_.enumerate()) {
    if (found.backend != GetParam()) continue;
    if (found.devices.empty()) GTEST_SKIP() << found.why_none;
    for (const hal::DeviceInfo& device : found.devices) {
      for (const bool trans_b : {false, true})
        for (const std::int64_t m : {1, 4, 16}) {
          const kernels::Fit answer = fit(m, 4096, 4096, trans_b, DType::f32, device);
          EXPECT_TRUE(answer.ok) << device.id << ", " << m << " rows: " << answer.reason;
        }
      EXPECT_THAT(fit(17, 4096, 4096, true, DType::f32, device).reason,
                  HasSubstr("takes at most 16 rows, not 17"));
      EXPECT_EQ(catalog_.variants("matmul", GetParam()).front(), variant_) << "goes before the others";
    }
  }
}

// The harness holds the variant to the reference by these.
TEST_P(FewRows, AreAmongTheRandomCalls) {
  hal::DeviceInfo gpu;
  gpu.backend = GetParam();
  gpu.profile = hal::find_profile("rx7900xtx");
  gpu.limits.max_workgroup = 256;
  gpu.limits.max_local_bytes = 32 << 10;
  gpu.limits.max_groups = {65535, 65535, 65535};
  const kernels::Contract& contract = catalog_.contract("matmul");
  int taken = 0;
  for (std::uint64_t i = 0; i < 300; ++i) taken += fit(contract.random_case({kernels::mix(i, 5)}), gpu).ok;
  EXPECT_GT(taken, 90);
}

TEST_P(FewRows, LeaveManyRowsOfHalvesToTheMatrixUnit) {
  hal::DeviceInfo gpu;
  gpu.backend = GetParam();
  gpu.features = {"f16-storage", "i16-arithmetic"};
  gpu.profile = hal::find_profile("h100");
  gpu.limits.max_workgroup = 1024;
  gpu.limits.max_local_bytes = 48 << 10;
  gpu.limits.max_groups = {65535, 65535, 65535};
  EXPECT_TRUE(fit(16, 4096, 4096, true, DType::bf16, gpu).ok);
  gpu.limits.matrix_shapes = {{16, 16, 16, DType::bf16, DType::f32}};
  EXPECT_TRUE(fit(1, 4096, 4096, true, DType::bf16, gpu).ok);
  EXPECT_TRUE(fit(16, 4096, 4096, true, DType::f16, gpu).ok);
  EXPECT_THAT(fit(16, 4096, 4096, true, DType::bf16, gpu).reason, HasSubstr("there is a matrix unit"));
}

INSTANTIATE_TEST_SUITE_P(Apis, FewRows, testing::Values("opencl", "vulkan"));

}  // namespace
}  // namespace meshloom::tests
