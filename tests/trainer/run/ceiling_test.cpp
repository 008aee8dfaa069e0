// The ceiling that MFU is relative to.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "tests/trainer/run/binary.h"
#include "trainer/run/ceiling.h"

namespace meshloom::tests {
namespace {

using trainer::FlopsCeiling;

TEST(Ceiling, IsTheBestOfWhatWasMeasuredAndReached) {
  double measured = 1e9;
  int times = 0;
  FlopsCeiling ceiling(1e9, [&] { return ++times, measured; });
  EXPECT_DOUBLE_EQ(ceiling.utilization(0.5e9, 1), 0.5);
  const int before = times;
  measured = 4e9;
  EXPECT_DOUBLE_EQ(ceiling.utilization(3e9, 1), 0.75) << "above the ceiling: measured again";
  EXPECT_EQ(times, before + 1);
  measured = 2e9;  // a busy moment
  EXPECT_DOUBLE_EQ(ceiling.utilization(5e9, 1), 1) << "measured, and still below what was reached";
  EXPECT_DOUBLE_EQ(ceiling.utilization(2.5e9, 1), 0.5);
  EXPECT_DOUBLE_EQ(ceiling.flops(), 5e9);
}

TEST(Ceiling, IsMeasuredWhileTheRunGoesOn) {
  int times = 0;
  FlopsCeiling ceiling(1e9, [&] { return ++times, 1e9 * (1 + times); });
  while (times < 2) {
    EXPECT_LE(ceiling.utilization(1e8, 1), 0.1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_DOUBLE_EQ(ceiling.flops(), 3e9);
}

TEST(Ceiling, IsNotKnownWhereNothingSaysIt) {
  FlopsCeiling ceiling(0, {});
  EXPECT_EQ(ceiling.utilization(1e9, 1), 0);
}

TEST(Ceiling, OfADataSheetIsNotMeasured) {
  hal::Registry registry;
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
  const auto device = registry.open("cpu", "h100");
  FlopsCeiling ceiling(*device, hal::DType::bf16);
  EXPECT_DOUBLE_EQ(ceiling.flops(), hal::find_profile("h100").flops(hal::DType::bf16));
  const auto host = registry.open("cpu");
  EXPECT_GE(FlopsCeiling(*host, hal::DType::f32).flops(), host->profile().flops(hal::DType::f32));
  EXPECT_EQ(host->peak_bytes(), 0) << "a plan's memory is the run's alone";
}

// More threads than cores while the program starts and measures, none afterwards.
TEST(Ceiling, OfAMachineThatWasBusyAtFirstIsNotWhatStepsAreAbove) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(40000));
  std::atomic<bool> busy = true;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 8 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      while (busy) {
      }
    });
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    busy = false;
  });
  const Outcome outcome =
      meshloom("train byte-llama-2m --device cpu --steps 6 --quiet --sample 0 --set eval_batches=0 --data " +
               text + " --out " + scratch.path("run"));
  end.join();
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(read_text(scratch.path("run/metrics.jsonl")));
  int steps = 0;
  for (std::string line; std::getline(lines, line); ++steps) {
    const double mfu = nlohmann::json::parse(line)["mfu"];
    EXPECT_GT(mfu, 0);
    EXPECT_LE(mfu, 1) << line;
  }
  EXPECT_EQ(steps, 6);
}

}  // namespace
}  // namespace meshloom::tests
