// `meshloom bench mesh`: what it says of moves, and no times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/core/mesh.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::bench {
namespace {

using testing::HasSubstr;
using tests::meshloom;

TEST(BenchMesh, MovedBytesAreThoseOfThePlan) {
  const tests::Outcome outcome = meshloom(
      "bench mesh tiny --device cpu --mesh data=2,fsdp=2 --steps 2 --quiet --json - "
      "--link 'latency=0.1ms bandwidth=100MB/s'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("mesh"), "data=2,fsdp=2");
  EXPECT_EQ(json.at("overlap_seconds").size(), 2U);
  EXPECT_EQ(json.at("no_overlap_seconds").size(), 2U);
  EXPECT_TRUE(json.at("as_planned"));
  ASSERT_EQ(json.at("ranks").size(), 4U);
  for (const auto& rank : json.at("ranks")) {
    EXPECT_EQ(rank.at("planned"), rank.at("moved"));
    EXPECT_GT(rank.at("planned").at("bytes_out"), 0);
  }
}

TEST(BenchMesh, ABalancedLinkFollowsFromComputing) {
  const tests::Outcome outcome =
      meshloom("bench mesh tiny --device cpu --ranks 2 --steps 1 --quiet --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_TRUE(json.at("link").at("balanced"));
  EXPECT_NEAR(
      json.at("link").at("bytes_per_second").get<double>() * json.at("computing_seconds").get<double>(),
      json.at("ranks").at(0).at("planned").at("bytes_out").get<double>(), 1);
}

TEST(BenchMesh, ADifferenceIsTold) {
  MeshReport report;
  report.planned = {{100, 100, 1, 1}};
  report.moved = {{101, 100, 1, 1}};
  report.waiting = {2};
  report.overlapping = {1};
  EXPECT_FALSE(report.as_planned());
  EXPECT_THAT(to_text(report), HasSubstr("moved: 101 out and 100 in"));
  EXPECT_THAT(to_text(report), HasSubstr("ratio       0.500"));
}

TEST(BenchMesh, RefusesWhatIsNoMesh) {
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"tiny", "needs at least two ranks"},
           {"tiny --mesh data=2 --link fast", "--link"},
           {"tiny --mesh data=2 --slow 7:2", "--slow: a rank must be from 0 to 1"},
           {"tiny --mesh data=3", "a multiple of its 3 ranks"}}) {
    const tests::Outcome outcome = meshloom("bench mesh --device cpu " + options);
    EXPECT_NE(outcome.code, 0) << options;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << options;
  }
}

}  // namespace
}  // namespace meshloom::bench
