// What only OpenCL has: status codes that mean a lost device, binaries kept by drivers.
#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/device/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "backends/opencl/backend.h"
#include "backends/opencl/device/enumerate.h"
#include "backends/opencl/device/fused_probe.h"
#include "backends/opencl/device/status.h"
#include "hal/wrappers/forwarding_device.h"
#include "tests/message_of.h"

namespace meshloom::backends::opencl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::message_of;

// NVIDIA's and Intel's drivers say CL_OUT_OF_RESOURCES where they wait for a kernel that faulted.
TEST(OpenClStatus, OutOfResourcesWhileWaitingIsALostDevice) {
  for (const cl_int status : {CL_OUT_OF_RESOURCES, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST})
    EXPECT_THROW(check_work(status, "opencl:0", "clFinish", ""), hal::DeviceLost) << status;
  EXPECT_THAT(
      message_of([] { check_work(CL_OUT_OF_RESOURCES, "opencl:0", "clFinish", "page fault at 0x10"); }),
      AllOf(HasSubstr("opencl:0: "), HasSubstr("smaller batch"), HasSubstr("CL_OUT_OF_RESOURCES (-5)"),
            HasSubstr("page fault at 0x10")));
  // Elsewhere it is what it says.
  EXPECT_THAT(message_of([] { check(CL_OUT_OF_RESOURCES, "opencl:0", "clEnqueueNDRangeKernel"); }),
              HasSubstr("clEnqueueNDRangeKernel must succeed"));
  EXPECT_THROW(check_work(CL_MEM_OBJECT_ALLOCATION_FAILURE, "opencl:0", "clFinish", ""), hal::OutOfMemory);
  EXPECT_THAT(message_of([] { check_work(CL_INVALID_VALUE, "opencl:0", "clFinish", "bad flag"); }),
              HasSubstr("CL_INVALID_VALUE (-30); the driver says: bad flag"));
  check_work(CL_SUCCESS, "opencl:0", "clFinish", "a hint");
}

class DoesNothing : public hal::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void submit(hal::CommandList&) override {}
};
class CompilesNothingFused : public hal::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override {
    if (spec.fused > 1) throw hal::Error(spec.kernel, "must compile", "too many arguments");
    return ForwardingDevice::load(spec);
  }
};

TEST(FusedLaunches, ADriverThatGetsThemWrongIsFound) {
  std::string why_none;
  if (enumerate_devices(why_none).empty()) GTEST_SKIP() << why_none;
  const hal::BackendEntry backend = opencl_backend();
  EXPECT_EQ(fused_launch_problem(*backend.open(0)), "");
  DoesNothing idle(backend.open(0));
  EXPECT_THAT(fused_launch_problem(idle),
              HasSubstr("of a launch of 8 dispatches, element 0 of number 0 is -1"));
  CompilesNothingFused narrow(backend.open(0));
  EXPECT_THAT(fused_launch_problem(narrow), HasSubstr("too many arguments"));
}

TEST(OpenClCache, ABinaryWithoutTheKernelIsBuiltAnew) {
  std::string why_none;
  std::vector<PhysicalDevice> found = enumerate_devices(why_none);
  if (found.empty()) GTEST_SKIP() << why_none;
  cl_int status = CL_SUCCESS;
  const Context context{clCreateContext(nullptr, 1, &found[0].device, nullptr, nullptr, &status)};
  ASSERT_EQ(status, CL_SUCCESS);
  std::string folder = (std::filesystem::temp_directory_path() / "meshloom-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const hal::DiskCache cache{folder};
  const Compiler compiler{context.get(), found[0].device, found[0].info, cache};
  const hal::ExecutableSpec fill{"fill_pattern", {}, {8, 1, 1}, {hal::Access::read, hal::Access::write}, 3},
      iota{"iota", {}, {8, 1, 1}, {hal::Access::write}, 1};
  compiler.compile(iota);
  const auto other = cache.load("clbin", compiler.cache_key(iota));
  if (!other) {
    std::filesystem::remove_all(folder);
    GTEST_SKIP() << "the driver gives no binaries";
  }
  cache.store("clbin", compiler.cache_key(fill), *other);
  EXPECT_EQ(message_of([&] { compiler.compile(fill); }), "no error");
  EXPECT_NE(cache.load("clbin", compiler.cache_key(fill)), other) << "the wrong binary stayed";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace meshloom::backends::opencl
#endif
