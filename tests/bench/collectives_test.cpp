// `meshloom bench collectives`: fits, predictions, what it says, and no times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "backends/mpi/backend.h"
#include "backends/threads/backend.h"
#include "bench/core/collectives.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace collective = kernels::collective;

TEST(Collectives, ALinkIsFitted) {
  std::vector<LinkPoint> points;
  for (const std::int64_t bytes : {8, 1000, 100000, 1000000})
    points.push_back({bytes, 2e-4 + static_cast<double>(bytes) / 100e6});
  const LinkFit fit = fit_link(points);
  EXPECT_NEAR(fit.alpha, 2e-4, 1e-9);
  EXPECT_NEAR(fit.bandwidth, 100e6, 1);
  // Neither number is negative, whatever was measured.
  EXPECT_EQ(fit_link({{10, 1e-6}, {1000, 1e-3}}).alpha, 0);
  EXPECT_EQ(fit_link({{10, 2e-3}, {1000, 1e-3}}).bandwidth, 0);
  EXPECT_THAT(tests::message_of([] {
                fit_link({{10, 1e-3}, {10, 2e-3}});
              }),
              HasSubstr("needs points of two sizes"));
}

TEST(Collectives, ThePredictionIsOfTheBusiestPort) {
  const LinkFit link{1e-3, 1e-4, 1e6};
  const std::vector<std::int64_t> sizes{1000, 2000, 0};
  std::vector<std::vector<collective::Move>> lists;
  for (int rank = 0; rank < 3; ++rank) lists.push_back(collective::all_gather(sizes, rank));
  // Rank 1 sends 2000 bytes to two ranks.
  EXPECT_DOUBLE_EQ(predicted_seconds(link, lists), 1e-3 + 1e-4 + 4e-3);
  lists.clear();
  for (int rank = 0; rank < 3; ++rank) lists.push_back(collective::shift(sizes, 3, rank));
  EXPECT_EQ(predicted_seconds(link, lists), 0) << "copies only";
  const std::vector<std::int64_t> longer{2 * hal::kMaxMessageBytes + 1, 0};
  lists = {collective::shift(longer, 1, 0), collective::shift(longer, 1, 1)};
  EXPECT_DOUBLE_EQ(predicted_seconds({1e-3, 1e-4, 0}, lists), 1e-3 + 2e-4) << "three messages";
}

TEST(Collectives, RanksThatDoNotAnswerAreNamed) {
  const std::string thrown = tests::message_of([] {
    backends::threads::run_ranks(2, [](std::unique_ptr<hal::Transport> transport) {
      CollectivesReport report;
      CollectivesOptions options;
      options.sizes = {64};
      options.patience = 0.2;
      if (transport->rank() == 0) return measure_collectives(*transport, options, report);
      std::byte byte;
      const auto never = transport->receive(0, {7, "", ""}, std::span(&byte, 1));
      while (!never->done()) {
      }
    });
  });
  EXPECT_THAT(thrown, HasSubstr("of bench: rank 1 ("));
}

void expect_whole(const nlohmann::json& report, int ranks) {
  EXPECT_EQ(report["schema"], "meshloom-collectives/1");
  EXPECT_GT(report["link"]["points"].size(), 2u);
  std::vector<std::string> ops;
  for (const auto& row : report["collectives"]) {
    ops.push_back(row["op"]);
    EXPECT_EQ(row["check"], "ok");
    EXPECT_GT(row["seconds"].get<double>(), 0);
    const std::int64_t input = row["input_bytes"];
    EXPECT_EQ(row["moved_bytes"], row["op"] == "all_gather" ? input * (ranks - 1)
                                  : row["op"] == "shift"    ? input
                                                            : input / ranks * (ranks - 1));
  }
  EXPECT_THAT(ops, ElementsAre("all_gather", "all_to_all", "reduce_scatter", "shift"));
}

TEST(CollectivesCommand, MeasuresThreadsAndAnEmulatedLink) {
  const tests::Outcome plain =
      tests::meshloom("bench collectives --ranks 3 --sizes 6000 --time-per-case 5ms --quiet --json");
  ASSERT_EQ(plain.code, 0) << plain.err;
  expect_whole(nlohmann::json::parse(plain.out), 3);
  const tests::Outcome linked = tests::meshloom(
      "bench collectives --ranks 2 --sizes 4096 --link 'latency=1ms bandwidth=1GB/s jitter=0.1ms' --slow 1:2 "
      "--checked --time-per-case 5ms --quiet --json");
  ASSERT_EQ(linked.code, 0) << linked.err;
  const nlohmann::json report = nlohmann::json::parse(linked.out);
  expect_whole(report, 2);
  EXPECT_EQ(report["emulated"], "latency=1ms bandwidth=1GB/s jitter=100us, slowed 1:2");
  EXPECT_GE(report["link"]["points"][0]["seconds"].get<double>(), 2e-3) << "the slowed rank's latency";
}

TEST(CollectivesCommand, RefusesWhatCannotBe) {
  const auto said = [](const std::string& arguments, const std::string& before = "") {
    const tests::Outcome outcome = tests::meshloom("bench collectives --quiet " + arguments, before);
    EXPECT_NE(outcome.code, 0) << arguments;
    EXPECT_EQ(outcome.errors().size(), 1u) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(said("--link 'latency=0ms bandwidth=1GB/s'"),
              HasSubstr("--link: latency must be above zero; found '0ms'"));
  EXPECT_THAT(said("--link 'latency=1ms bandwidth=-1GB/s'"), HasSubstr("bandwidth must be above zero"));
  EXPECT_THAT(said("--slow 1:3"), HasSubstr("--slow: needs --link"));
  EXPECT_THAT(said("--slow 2:3 --link 'latency=1ms bandwidth=1GB/s'"),
              HasSubstr("--slow: a rank must be from 0 to 1; found '2:3'"));
  EXPECT_THAT(said("--ranks 1"), HasSubstr("--ranks"));
  EXPECT_THAT(said("--sizes 1XB"), HasSubstr("--sizes: must be sizes from 1B to 1024MiB"));
  EXPECT_THAT(said("--sizes 0"), HasSubstr("--sizes"));
  EXPECT_THAT(said("--patience 0"), HasSubstr("--patience"));
  EXPECT_THAT(said("", "SLURM_NTASKS=2 SLURM_PROCID=0"), HasSubstr("lone copies under srun"));
  EXPECT_THAT(said("", "PMI_SIZE=2"), HasSubstr("another MPI's"));
  EXPECT_THAT(said("--ranks 2", "OMPI_COMM_WORLD_SIZE=2"),
              HasSubstr("--ranks: must not be given where a launcher"));
}

TEST(CollectivesCommand, MeasuresProcessesOverMpi) {
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const tests::Scratch scratch;
  const std::string file = scratch.path("out.json"), err = scratch.path("err");
  const auto run = [&](const std::string& options) {
    return std::system(
        ("timeout 100 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 " MESHLOOM_BINARY
         " bench collectives --sizes 6000 --time-per-case 5ms --quiet " +
         options + " >/dev/null 2>" + err)
            .c_str());
  };
  ASSERT_EQ(run("--json " + file), 0) << tests::read_text(err);
  const nlohmann::json report = nlohmann::json::parse(tests::read_text(file));
  expect_whole(report, 3);
  EXPECT_EQ(report["ranks"], "3 processes on 1 host, over MPI");
  // What all ranks find wrong is told once.
  EXPECT_NE(run("--link 'latency=0ms bandwidth=1GB/s'"), 0);
  const std::string said = tests::read_text(err),
                    line = "meshloom: --link: latency must be above zero; found '0ms'";
  ASSERT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

}  // namespace
}  // namespace meshloom::bench
