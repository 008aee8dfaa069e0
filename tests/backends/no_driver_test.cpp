// A machine without drivers: an empty list with a sentence that helps, and an error of one line on opening.
// Drivers are looked for once per process, so each case runs in a fresh one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "hal/registry.h"
#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/backend.h"
#endif
#ifdef MESHLOOM_HAS_VULKAN
#include "backends/vulkan/backend.h"
#endif

namespace meshloom {
namespace {

// Ends the process with 0 when the backend says `helps` both ways.
[[noreturn]] void expect_none(const hal::BackendEntry& backend, const std::string& helps) {
  std::string why_none;
  bool good = backend.enumerate(why_none).empty() && why_none.find(helps) != std::string::npos;
  try {
    backend.open(0);
    good = false;
  } catch (const Error& error) {
    const std::string what = error.what();
    good = good && what.find(helps) != std::string::npos && what.find('\n') == std::string::npos;
  }
  std::fprintf(stderr, "%s\n", why_none.c_str());
  std::exit(good ? 0 : 1);
}

#ifdef MESHLOOM_HAS_OPENCL
TEST(NoDriverDeathTest, OpenClSaysWhatToInstall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without = [] {
    ::setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    expect_none(backends::opencl::opencl_backend(), "install pocl-opencl-icd");
  };
  EXPECT_EXIT(without(), testing::ExitedWithCode(0), "OpenCL");
}
#endif

#ifdef MESHLOOM_HAS_VULKAN
TEST(NoDriverDeathTest, VulkanSaysWhatToInstall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without = [] {
    ::setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
    ::setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
    expect_none(backends::vulkan::vulkan_backend(), "mesa-vulkan-drivers");
  };
  EXPECT_EXIT(without(), testing::ExitedWithCode(0), "Vulkan");
}

TEST(NoDriverDeathTest, AMissingDeviceIsNamed) {
  std::string why_none;
  const hal::BackendEntry backend = backends::vulkan::vulkan_backend();
  if (backend.enumerate(why_none).empty()) GTEST_SKIP() << why_none;
  try {
    backend.open(99);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("vulkan:99"), std::string::npos) << error.what();
  }
}
#endif

}  // namespace
}  // namespace meshloom
