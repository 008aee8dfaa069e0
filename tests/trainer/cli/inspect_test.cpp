// meshloom kernels --inspect, on Mesa's RADV without its hardware and on drivers that cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The manifest of an installed driver; "" = there is none.
std::string manifest(const std::string& name) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/share/vulkan/icd.d", none))
    if (entry.path().filename().string().starts_with(name)) return entry.path().string();
  return "";
}

// The environment in which this driver is the only one.
std::string only(const std::string& file) {
  return "export VK_DRIVER_FILES=" + file + " VK_ICD_FILENAMES=" + file + ";";
}

class NullHardware : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = manifest("radeon_icd");
    if (file.empty()) GTEST_SKIP() << "Mesa's driver for AMD is not installed (mesa-vulkan-drivers)";
    driver_ = only(file) + " export RADV_FORCE_FAMILY=navi21;";
    if (const Outcome listed = meshloom("devices --no-test --device vulkan", driver_);
        listed.out.find("RADV NAVI21") == std::string::npos)
      GTEST_SKIP() << "RADV does not stand for a navi21 here: " << listed.out << listed.err;
  }

  Outcome run(const std::string& arguments) const { return meshloom(arguments, driver_); }

  std::string driver_;
};

TEST_F(NullHardware, ACallIsInspected) {
  const Scratch scratch;
  const Outcome outcome =
      run("kernels --json --inspect 'matmul f32 512x512x512' --asm " + scratch.path("asm"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["call"], "matmul f32(512, 512), f32(512, 512)");
  ASSERT_FALSE(rows[0]["pipelines"].empty());
  const auto& pipeline = rows[0]["pipelines"][0];
  EXPECT_GT(pipeline["registers"].get<int>(), 16);
  EXPECT_LE(pipeline["registers"].get<int>(), 256);
  EXPECT_GT(pipeline["code_bytes"].get<int>(), 500);
  EXPECT_GT(pipeline["local_bytes"].get<int>(), 0) << "its tiles stand there";
  EXPECT_GE(pipeline["waves"].get<double>(), 1);
  int products = 0;
  for (const auto& loop : pipeline["loops"])
    if (loop["product"].get<bool>()) {
      ++products;
      EXPECT_GT(loop["multiply_share"].get<double>(), 0.2);
      EXPECT_LT(loop["multiply_share"].get<double>(), 1);
    }
  EXPECT_EQ(products, 1);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("asm"))) {
    ++files;
    const std::string extension = entry.path().extension().string(), text = read_text(entry.path().string());
    if (extension == ".asm") {
      EXPECT_THAT(text, AllOf(HasSubstr("v_fma"), HasSubstr("s_endpgm")));
    } else if (extension == ".spv") {
      EXPECT_EQ(text.substr(0, 4), "\x03\x02\x23\x07");
    } else if (extension == ".glsl") {
      EXPECT_THAT(text, HasSubstr("#version"));
    }
  }
  EXPECT_GE(files, 3u);
}

TEST_F(NullHardware, AFileOfCallsMakesATable) {
  const Scratch scratch;
  const std::string file = scratch.file("calls", "# norms\nrms_norm 64x256\n\nrms_norm f16 64x256  # half\n");
  const Outcome outcome = run("kernels --markdown --inspect-file " + file);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("| rms_norm f32 64x256 |"), HasSubstr("| rms_norm f16 64x256 |")));
  const Outcome bad =
      run("kernels --markdown --inspect-file " + scratch.file("bad", "rms_norm 64x256\nrms_norm 64\n"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err, HasSubstr("bad:2: rms_norm takes ROWSxN"));
}

TEST_F(NullHardware, RunsNothing) {
  const Scratch scratch;
  const std::string data = scratch.file("text", sample_text(4000));
  const Outcome outcome = run("train tiny --device vulkan:0 --data " + data + " --out " +
                              scratch.path("run") + " --steps 1 --sample 0 --quiet");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("this device compiles kernels and never runs them"));
}

TEST_F(NullHardware, AVariantThatDoesNotFitSaysWhy) {
  const Outcome unknown = run("kernels --inspect 'matmul 64x64x64' --variant gpu_tyle");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("the variant must be one of"), HasSubstr("gpu_tile")));
  const Outcome refused = run("kernels --inspect 'matmul f16 64x64x64' --variant cooperative");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("the variant cooperative must fit on"));
}

TEST(Inspect, ADriverThatSaysNothingIsNamed) {
  const std::string file = manifest("lvp_icd");
  if (file.empty()) GTEST_SKIP() << "lavapipe is not installed (mesa-vulkan-drivers)";
  const Outcome outcome = meshloom("kernels --inspect 'matmul 64x64x64'", only(file));
  // Newer ones than Debian 12's may have the extension.
  if (outcome.code == 0) GTEST_SKIP() << "this lavapipe can";
  if (outcome.err.find("must be one of those built") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_THAT(outcome.errors()[0],
              AllOf(HasSubstr("llvmpipe"), HasSubstr("VK_KHR_pipeline_executable_properties"),
                    HasSubstr("RADV_FORCE_FAMILY")));
}

TEST(Inspect, WhatCannotBeMeantIsRefused) {
  const auto error = [](const std::string& arguments) {
    const Outcome outcome = meshloom("kernels " + arguments);
    EXPECT_NE(outcome.code, 0) << arguments;
    return outcome.err;
  };
  EXPECT_THAT(error("--inspect 'matmul 64x64x64' --device cpu"),
              HasSubstr("kernels can be inspected on devices of"));
  EXPECT_THAT(error("--inspect 'matmull 64x64x64'"), HasSubstr("matmul"));
  EXPECT_THAT(error("--inspect 'matmul 64x64'"), HasSubstr("--inspect: matmul takes MxNxK or GxMxNxK"));
  EXPECT_THAT(error("--inspect matmul"), HasSubstr("must name a shape"));
  EXPECT_THAT(error("--inspect-file /nonexistent"), HasSubstr("must be a file that can be read"));
  EXPECT_THAT(error("--asm somewhere"), HasSubstr("go with --inspect"));
}

}  // namespace
}  // namespace meshloom::tests
