// Drivers that crash, hang or end the process when they are asked for their devices are left out by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/faults/support.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

struct Bad {
  const char *backend, *how, *said;
};

class BadDriver : public testing::TestWithParam<Bad> {
 protected:
  // Words in front of the program that plant the bad driver beside those of this machine, or alone.
  std::string planted(bool alone) {
    const std::string before = "MESHLOOM_BAD_DRIVER=" + std::string(GetParam().how) +
                               " MESHLOOM_CACHE_DIR=" + scratch_.path("cache") + " MESHLOOM_PROBE_SECONDS=2 ";
    if (std::string(GetParam().backend) == "vulkan") {
      std::string files = scratch_.file(
          "bad.json",
          nlohmann::json{{"file_format_version", "1.0.0"},
                         {"ICD", {{"library_path", MESHLOOM_BAD_DRIVER}, {"api_version", "1.3.0"}}}}
              .dump());
      if (!alone) files += ":/usr/share/vulkan/icd.d:/etc/vulkan/icd.d";
      // The older loaders take no folders.
      std::string list;
      for (std::size_t at = 0; at < files.size();) {
        const std::size_t end = std::min(files.find(':', at), files.size());
        const std::string path = files.substr(at, end - at);
        at = end + 1;
        if (!fs::is_directory(path)) {
          if (fs::exists(path)) list += (list.empty() ? "" : ":") + path;
          continue;
        }
        for (const auto& entry : fs::directory_iterator(path)) list += ":" + entry.path().string();
      }
      return before + "VK_DRIVER_FILES=" + list + " VK_ICD_FILENAMES=" + list;
    }
    const std::string folder = scratch_.path("vendors");
    fs::create_directories(folder);
    scratch_.file("vendors/bad.icd", std::string(MESHLOOM_BAD_DRIVER) + "\n");
    if (!alone && fs::is_directory("/etc/OpenCL/vendors"))
      for (const auto& entry : fs::directory_iterator("/etc/OpenCL/vendors"))
        fs::copy_file(entry.path(), folder + "/" + entry.path().filename().string(),
                      fs::copy_options::overwrite_existing);
    return before + "OCL_ICD_VENDORS=" + folder;
  }
  // The ids of a backend's devices.
  static std::vector<std::string> ids(const Outcome& outcome, const std::string& backend) {
    std::vector<std::string> found;
    for (const auto& row : nlohmann::json::parse(outcome.out))
      if (row.contains("id") && row["backend"] == backend) found.push_back(row["id"]);
    return found;
  }

  Scratch scratch_;
};

TEST_P(BadDriver, IsLeftOutByName) {
#ifdef MESHLOOM_SANITIZED
  GTEST_SKIP() << "a sanitizer answers the crash itself";
#endif
  const std::string backend = GetParam().backend;
  const std::string list = "devices --no-test --json";
  const Outcome good = meshloom(list);
  ASSERT_EQ(good.code, 0) << good.err;
  if (good.err.find("must be one of") != std::string::npos ||
      good.out.find("\"" + backend + "\"") == std::string::npos)
    GTEST_SKIP() << backend << " was not built";
  // Beside others, and the second time from the cache.
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = meshloom(list, planted(false));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.errors().empty()) << outcome.err;
    EXPECT_NE(outcome.err.find("note: the " + backend + " driver 'bad' ("), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(GetParam().said), std::string::npos) << outcome.err;
    EXPECT_EQ(ids(outcome, backend), ids(good, backend));
    EXPECT_FALSE(ids(outcome, "cpu").empty());
  }
  fs::remove_all(scratch_.path("vendors"));
  const Outcome alone = meshloom(list, planted(true));
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_TRUE(ids(alone, backend).empty()) << alone.out;
  EXPECT_NE(alone.out.find("each driver fails"), std::string::npos) << alone.out;
  const Outcome named = meshloom("devices --no-test --device " + backend, planted(true));
  EXPECT_EQ(named.code, 1);
  EXPECT_EQ(named.errors().size(), 1u) << named.err;
}

TEST(DriverProbe, SaysWhatIsWrongWithItsSetting) {
  const Scratch scratch;  // a cache that knows no driver
  const Outcome outcome = meshloom("devices --no-test --device vulkan",
                                   "MESHLOOM_CACHE_DIR=" + scratch.path() + " MESHLOOM_PROBE_SECONDS=soon ");
  if (outcome.err.find("must be one of") != std::string::npos) GTEST_SKIP() << "vulkan was not built";
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("MESHLOOM_PROBE_SECONDS: must be a number of at least 0; found 'soon'"),
            std::string::npos)
      << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadDriver,
    testing::Values(Bad{"vulkan", "crash", "crashed (Segmentation fault)"},
                    Bad{"vulkan", "hang", "did not answer within 2 s"}, Bad{"vulkan", "exit", "exit code 7"},
                    Bad{"opencl", "crash", "crashed (Segmentation fault)"},
                    Bad{"opencl", "hang", "did not answer within 2 s"}, Bad{"opencl", "exit", "exit code 7"}),
    [](const auto& info) { return std::string(info.param.backend) + "_" + info.param.how; });

}  // namespace
}  // namespace meshloom::tests
