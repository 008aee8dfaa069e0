// meshloom kernels --inspect, on Mesa's RADV without its hardware and on drivers that cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(NullHardware, AStepIsEstimated) {
  const Outcome json = run("bench estimate tiny --device vulkan:0 --as rx6800xt --quiet --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const auto step = nlohmann::json::parse(json.out);
  EXPECT_TRUE(step["predicted"].get<bool>());
  double likely = 0;
  std::set<std::string> ops;
  for (const auto& call : step["calls"]) {
    ASSERT_FALSE(call.contains("error")) << call;
    likely += call["per_step"].get<double>() * call["likely_seconds"].get<double>();
    EXPECT_LE(call["best_seconds"], call["likely_seconds"]);
    ops.insert(call["op"].get<std::string>());
  }
  const double saved = step["shared_launch_seconds"];
  EXPECT_GT(saved, 0) << "dispatches between the same barriers start together";
  EXPECT_NEAR(step["likely_seconds"].get<double>(), likely - saved, 1e-9);
  EXPECT_THAT(ops, testing::IsSupersetOf({"matmul", "flash_attention", "flash_attention_grad", "adamw"}));
  const Outcome text = run("bench estimate tiny --device vulkan:0 --as rx6800xt --memory 64KiB --quiet");
  EXPECT_THAT(text.err,
              HasSubstr("of the device's memory, of which there are 64.00 KiB: the recipe is estimated"));
  EXPECT_THAT(json.err, Not(HasSubstr("of the device's memory")));
  EXPECT_THAT(text.out, AllOf(HasSubstr("nothing runs"), HasSubstr("predicted"), HasSubstr("tokens/s")));
  const Outcome unknown = run("bench estimate tiny --device vulkan:0 --quiet");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("--as names a profile"));
}

TEST_F(NullHardware, CandidatesAreRanked) {
  const Outcome json = run("kernels --json --rank --as rx6800xt --inspect 'matmul f32 4096x4096x4096'");
  ASSERT_EQ(json.code, 0) << json.err;
  const auto ranked = nlohmann::json::parse(json.out)[0]["candidates"];
  ASSERT_GT(ranked.size(), 4u);
  EXPECT_EQ(ranked[0]["variant"], "gpu_tile");
  bool in_memory = false;
  double before = 1;
  int own = 0;
  for (const auto& one : ranked) {
    ASSERT_FALSE(one.contains("error")) << one;
    if (one["registers_in_memory"] != in_memory) {
      EXPECT_FALSE(in_memory) << "those that keep registers in memory come last";
      in_memory = true;
      before = 1;
    }
    EXPECT_LE(one["multiplying_share"].get<double>(), before);
    before = one["multiplying_share"];
    own += one["own"].get<bool>() && one["variant"] == "gpu_tile" ? 1 : 0;
  }
  EXPECT_EQ(own, 1);
  EXPECT_THAT(run("kernels --rank --inspect 'matmul 64x64x64'").out,
              AllOf(HasSubstr("rank"), HasSubstr("gpu_tile (as chosen by the variant)")));
  EXPECT_THAT(run("kernels --rank --inspect 'matmul 64x64x64' --variant naive").err,
              HasSubstr("--rank: goes without --variant, --asm and --fused"));
}

// A shader of another project is read as ours are: here ours, as a file, by another path through the driver.
TEST_F(NullHardware, AShaderOfOthersIsReadAlike) {
  const Scratch scratch;
  const Outcome ours = run("kernels --json --inspect 'matmul f32 512x512x512' --asm " + scratch.path("asm"));
  ASSERT_EQ(ours.code, 0) << ours.err;
  std::string spirv;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("asm")))
    if (entry.path().extension() == ".spv") spirv = entry.path().string();
  const Outcome theirs = run("kernels --json --inspect 'spirv " + spirv + " name=another 77=3'");
  ASSERT_EQ(theirs.code, 0) << theirs.err;
  auto own = nlohmann::json::parse(ours.out)[0]["pipelines"][0],
       foreign = nlohmann::json::parse(theirs.out)[0]["pipelines"][0];
  EXPECT_EQ(foreign["kernel"], "another");
  EXPECT_EQ(foreign["defines"], (nlohmann::json{{"77", "3"}}));
  for (const char* field : {"registers", "local_bytes", "code_bytes", "waves", "workgroup", "loops"})
    EXPECT_EQ(foreign[field], own[field]) << field;
  const Outcome table = run("kernels --markdown --inspect 'spirv " + spirv + " name=another'");
  EXPECT_THAT(table.out, HasSubstr("| spirv another | another | 64 |"));
}

TEST_F(NullHardware, ShadersThatCannotBeMeantAreRefused) {
  const Scratch scratch;
  const std::string text = scratch.file("text.spv", std::string(64, 'x'));
  const auto error = [&](const std::string& call) {
    const Outcome outcome = run("kernels --inspect 'spirv " + call + "'");
    EXPECT_EQ(outcome.code, 1) << call;
    EXPECT_EQ(outcome.errors().size(), 1u) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(error(""), HasSubstr("spirv must name a file"));
  EXPECT_THAT(error("/nonexistent.spv"), HasSubstr("must be a file that can be read"));
  EXPECT_THAT(error(scratch.file("odd.spv", "12345")), HasSubstr("in words of 4 bytes; found 5 bytes"));
  EXPECT_THAT(error(text), HasSubstr("must be SPIR-V in the byte order of this machine"));
  EXPECT_THAT(error(text + " wide"), HasSubstr("behind the file come ID=VALUE"));
  EXPECT_THAT(error(text + " 1=x"), HasSubstr("whole numbers of 32 bits; found 'x'"));
  EXPECT_THAT(error(text + " 1=2 1=3"), HasSubstr("every constant is given once; found '1' again"));
  EXPECT_THAT(error(text + " subgroup=7000"), HasSubstr("subgroups have"));
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
  EXPECT_THAT(error("--inspect 'matmul f64 64x64x64'"), HasSubstr("must be one of f32, f16, bf16"));
  EXPECT_THAT(error("--inspect-file /nonexistent"), HasSubstr("'/nonexistent'"));
  EXPECT_THAT(error("--inspect-file /"), HasSubstr("'/': must be a file or a pipe; found a directory"));
  const Scratch scratch;
  const std::string empty = scratch.file("empty", "# no call\n");
  EXPECT_THAT(error("--inspect-file " + empty), HasSubstr("'" + empty + "': must name a call"));
  EXPECT_THAT(error("--asm somewhere"), HasSubstr("go with --inspect"));
}

}  // namespace
}  // namespace meshloom::tests
