// `meshloom plan` as a program reads it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/train/binary.h"

namespace meshloom::tests {
namespace {

// On a profile whose numbers are written down: the host's are measured anew by every process.
nlohmann::json plan(const std::string& more = {}) {
  const Outcome outcome = meshloom("plan tiny --device null --as h100 --json " + more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

TEST(Plan, ANamedVariantChangesAndNothingElse) {
  const nlohmann::json before = plan();
  const int calls = before["variants"]["matmul"]["calls"]["gpu_tile"];
  for (const std::string rule :
       {"--set 'kernels=[KernelRule{op=matmul path=\".*q_proj\" variant=naive}]'",
        "--rule 'null-.* => SetKernel{op=matmul path=\".*q_proj\" variant=naive}'"}) {
    nlohmann::json after = plan(rule);
    nlohmann::json& matmul = after["variants"]["matmul"];
    EXPECT_EQ(matmul["chosen"], nlohmann::json({"gpu_tile", "naive"})) << rule;
    const int named = matmul["calls"]["naive"];
    EXPECT_GT(named, 0);
    EXPECT_EQ(matmul["calls"]["gpu_tile"].get<int>() + named, calls);
    matmul = before["variants"]["matmul"];
    EXPECT_EQ(nlohmann::json::diff(before, after), nlohmann::json::array()) << rule;
  }
}

TEST(Plan, ANamedVariantThatDoesNotFitIsAnErrorWithItsReason) {
  for (const std::string rule : {"--set 'kernels=[KernelRule{op=matmul variant=trainium_psum}]'",
                                 "--rule 'null-.* => SetKernel{op=matmul variant=trainium_psum}'"}) {
    const Outcome outcome = meshloom("plan tiny --device null --as h100 " + rule);
    EXPECT_EQ(outcome.code, 1) << rule;
    ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
    for (const char* part : {"trainium_psum", "must fit", "PSUM"})
      EXPECT_NE(outcome.errors()[0].find(part), std::string::npos) << outcome.errors()[0];
  }
}

TEST(Plan, ViewsAreNoCalls) {
  const nlohmann::json json = plan();
  EXPECT_GT(json["views"]["reshape"].get<int>(), 0);
  EXPECT_FALSE(json["variants"].contains("reshape"));
}

TEST(Plan, GradientsAreCountedWhereMostAreHeld) {
  const nlohmann::json json = plan();
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"].items()) {
    sum += bytes.get<std::int64_t>();
    EXPECT_GE(json["memory_most"][name], bytes) << name;
  }
  EXPECT_EQ(sum, json["peak_bytes"]);
  EXPECT_GE(json["memory_most"]["gradients"].get<std::int64_t>(), 4 * json["parameters"].get<std::int64_t>());
}

// A device cannot lend more than it has, whatever it runs as.
TEST(Plan, MemoryIsTheSmallerOfDeviceAndProfile) {
  const auto there = [](const std::string& device) {
    return nlohmann::json::parse(meshloom("plan tiny --json " + device).out, nullptr, false)["device_bytes"]
        .get<std::int64_t>();
  };
  EXPECT_EQ(there("--device cpu --as h100"),
            std::min(there("--device cpu"), there("--device null --as h100")));
}

}  // namespace
}  // namespace meshloom::tests
