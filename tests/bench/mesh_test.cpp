// `meshloom bench mesh`: what it says of moves, and no times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/core/mesh.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/cost/measured_links.h"

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

TEST(MeasuredLinks, PredictTheMovesOfPlans) {
  const tests::Scratch scratch;
  const std::string cache = "MESHLOOM_CACHE_DIR=" + scratch.path("cache");
  const std::string plan = "plan tiny --device null --mesh data=2,fsdp=2 ";
  EXPECT_THAT(meshloom(plan, cache).out, HasSubstr("no link was measured (meshloom bench collectives)"));
  const std::string bench = "bench collectives --ranks 2 --sizes 4KiB --time-per-case 0.01 --quiet ";
  // What is emulated says nothing of this machine.
  ASSERT_EQ(meshloom(bench + "--link 'latency=1ms bandwidth=1MB/s'", cache).code, 0);
  EXPECT_THAT(meshloom(plan, cache).out, HasSubstr("no link was measured"));
  ASSERT_EQ(meshloom(bench, cache).code, 0);
  EXPECT_THAT(meshloom(plan, cache).out, testing::ContainsRegex("predicted +[0-9.e-]+ s between threads"));
  const auto json = nlohmann::json::parse(meshloom(plan + "--json", cache).out);
  EXPECT_GT(json.at("predicted_move_seconds").at("threads").get<double>(), 0);
}

TEST(MeasuredLinks, ArePredictedByTheBusiestPort) {
  trainer::Plan plan;
  trainer::PlannedProgram& planned = plan.steps.programs[trainer::Step::train];
  plan.steps.update = {{trainer::Step::train, 2}};
  trainer::Exchange exchange;
  exchange.moved = {2000, 3000, 2, 1};
  planned.exchanges = {exchange, trainer::Exchange()};
  EXPECT_DOUBLE_EQ(trainer::predicted_move_seconds(plan, {1e-3, 1e-4, 1e6, ""}), 2 * (1e-3 + 1e-4 + 3e-3));
  EXPECT_DOUBLE_EQ(trainer::predicted_move_seconds(plan, {1e-3, 0, 0, ""}), 2 * 1e-3);
}

TEST(MeasuredLinks, TransfersBetweenStagesArePredicted) {
  trainer::Plan plan;
  plan.persistent_types["pipe/x@0.0"] = {kernels::DType::f32, {500}};
  plan.steps.transfers = {{.out = true, .rank = 1, .tag = 7, .values = {"pipe/x@0.0"}}};
  plan.steps.schedule.resize(3);
  plan.steps.schedule[0].transfer = plan.steps.schedule[2].transfer = 0;
  EXPECT_DOUBLE_EQ(trainer::predicted_move_seconds(plan, {1e-3, 1e-4, 1e6, ""}), 2 * (1e-3 + 2e-3));
}

TEST(MeasuredLinks, AFileThatIsDamagedIsTold) {
  const auto error = [](const std::string& text) {
    return tests::message_of([&] { trainer::parse_measured_links(text, "links"); });
  };
  const std::string good =
      R"({"schema": "meshloom-links/1", "links": {"threads": {"alpha_seconds": 1e-6, "gap_seconds": 0, )"
      R"("bytes_per_second": 1e9, "date": "today"}}})";
  EXPECT_EQ(error(good), "no error");
  EXPECT_THAT(error("{"), HasSubstr("links"));
  EXPECT_THAT(error(R"({"schema": "x", "links": {}})"), HasSubstr("must be meshloom-links/1"));
  std::string negative = good;
  negative.replace(negative.find("1e9"), 3, "-1");
  EXPECT_THAT(error(negative), HasSubstr("bytes_per_second must be a number that is not negative"));
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
