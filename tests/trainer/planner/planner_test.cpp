// Predicted steps over meshes, and the search for better ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "hal/error.h"
#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "trainer/config/mesh_modifiers.h"
#include "trainer/config/trainer_config.h"
#include "trainer/planner/move_times.h"
#include "trainer/planner/picture.h"
#include "trainer/planner/search.h"
#include "trainer/planner/timeline.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {
namespace {

using testing::HasSubstr;
using tests::message_of;

class Planner : public testing::Test {
 protected:
  Planner() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    device_ = registry_.open("null");
    device_->run_as(hal::find_profile("h100"));
  }

  TrainerConfig tiny_on(const std::string& mesh, std::int64_t accumulation = 1) {
    TrainerConfig config = find_recipe("tiny").make();
    config.batch = 16;
    config.accumulation = accumulation;
    layers::set(config, "model.decoder.stack.num_layers", "4", classes_);
    MeshConfig axes;
    if (!mesh.empty()) axes.parse(mesh, 0);
    config.mesh = axes;
    return config;
  }

  // One level of this speed.
  static hal::Network one_level(double alpha, double bytes_per_second) {
    return {"one", "", {}, {{"link", 0, alpha, 0, bytes_per_second, {}}}};
  }

  StepTime time_of(const TrainerConfig& config, const hal::Network& network, bool spans = false) {
    const std::vector<Plan> plans = stage_plans(config, catalog_, device_->info());
    return simulate_step(pointers_to(plans), network, device_->info(), spans);
  }

  hal::Registry registry_;
  kernels::Catalog catalog_;
  layers::ClassTable classes_ = recipe_classes();
  std::unique_ptr<hal::Device> device_;
};

double sum(const std::map<std::string, double>& parts) {
  double all = 0;
  for (const auto& [what, seconds] : parts) all += seconds;
  return all;
}

TEST_F(Planner, OneRankTakesAsLongAsItsCalls) {
  const TrainerConfig config = tiny_on("", 2);
  const std::vector<Plan> plans = stage_plans(config, catalog_, device_->info());
  const StepTime time = simulate_step(pointers_to(plans), one_level(1, 1), device_->info());
  EXPECT_NEAR(time.seconds, plans[0].update_predicted_seconds(), 1e-9 * time.seconds);
  EXPECT_TRUE(time.moves.empty());
}

TEST_F(Planner, ThePathIsTheWholeStep) {
  for (const char* mesh :
       {"data=2", "fsdp=4", "model=2", "data=2,fsdp=2,model=2", "pipeline=2", "pipeline=2,fsdp=2"}) {
    const StepTime time = time_of(tiny_on(mesh, 4), hal::find_network("h100-8"));
    EXPECT_NEAR(sum(time.path), time.seconds, 1e-9 * time.seconds) << mesh;
    EXPECT_FALSE(time.moves.empty()) << mesh;
  }
}

// What is moved is the plan's bytes over the link, wherever it starts.
TEST_F(Planner, ASlowLinkIsThePathAndAFastOneIsHidden) {
  const TrainerConfig config = tiny_on("fsdp=4");
  const std::vector<Plan> plans = stage_plans(config, catalog_, device_->info());
  double bytes = 0;
  for (const auto& [axes, moved] : plans[0].update_moved_bytes()) bytes += static_cast<double>(moved.out);
  const StepTime slow = simulate_step(pointers_to(plans), one_level(1e-9, 1e6), device_->info());
  EXPECT_NEAR(slow.path.at("link"), bytes / 1e6, 0.01 * bytes / 1e6);
  EXPECT_GT(slow.path.at("link"), 0.9 * slow.seconds);
  const StepTime fast = simulate_step(pointers_to(plans), one_level(1e-12, 1e15), device_->info());
  const double computing = plans[0].update_predicted_seconds();
  EXPECT_NEAR(fast.seconds, computing, 1e-3 * computing);
}

// With messages that take no time the bubble is that of the schedule.
TEST_F(Planner, APipelineHasItsBubble) {
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    TrainerConfig config = tiny_on("pipeline=4", 8);
    layers::set(config, "mesh.schedule", schedule, classes_);
    const StepTime time = time_of(config, one_level(1e-15, 1e18));
    EXPECT_GT(time.path.at("bubble"), 0) << schedule;
    EXPECT_LT(time.path.at("bubble"), 0.6 * time.seconds) << schedule;
  }
  const StepTime few = time_of(tiny_on("pipeline=4", 4), one_level(1e-15, 1e18)),
                 many = time_of(tiny_on("pipeline=4", 16), one_level(1e-15, 1e18));
  EXPECT_GT(few.path.at("bubble") / few.seconds, many.path.at("bubble") / many.seconds);
}

// Of four runs of a sequence the last attends to all of them. In zigzag all ranks have a quarter of the pairs.
TEST_F(Planner, TheRankWithMostToAttendToStandsForAll) {
  TrainerConfig config = tiny_on("seq=4");
  config.sequence = 64;
  EXPECT_EQ(stage_plans(config, catalog_, device_->info()).at(0).mesh.rank(), 3);
  const auto shares = [&](SequenceOrder order) {
    ComposeOptions options = config.compose_options();
    options.sequence_order = order;
    std::vector<double> flops;
    for (options.rank = 0; options.rank < 4; ++options.rank)
      flops.push_back(compose_training(*config.model, *config.learner, options, catalog_, device_->info())
                          .update_flops_of("flash_attention"));
    const double all = std::accumulate(flops.begin(), flops.end(), 0.0);
    for (double& share : flops) share /= all;
    return flops;
  };
  const double pairs = 64 * 65 / 2, own = 16 * 17 / 2, before = 16 * 16;
  const std::vector<double> contiguous = shares(SequenceOrder::contiguous),
                            zigzag = shares(SequenceOrder::zigzag);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(contiguous[rank], (own + static_cast<double>(rank) * before) / pairs, 1e-12);
    EXPECT_NEAR(zigzag[rank], 0.25, 1e-12);
  }
}

TEST_F(Planner, AxesCrossTheLevelsOfTheirRanks) {
  const Topology mesh({{"data", 4}, {"fsdp", 8}}, 0);
  const MoveTimes times(hal::find_network("h100-8"), mesh);
  const std::vector<LevelMoves> inside = times.exchange(AxisName::fsdp, {700, 700, 7, 7});
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_EQ(inside[0].level, 0U);
  EXPECT_EQ(inside[0].peers, 7);
  EXPECT_EQ(inside[0].bytes, 700);
  const std::vector<LevelMoves> between = times.exchange(AxisName::data, {300, 100, 3, 1});
  ASSERT_EQ(between.size(), 1U);
  EXPECT_EQ(between[0].level, 1U);
  EXPECT_EQ(between[0].bytes, 300) << "the busier direction";
  const std::vector<LevelMoves> both = times.exchange(mesh.all(), {3100, 3100, 31, 31});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].bytes, 700);
  EXPECT_EQ(both[1].bytes, 2400);
  EXPECT_EQ(times.transfer(0, 8, 10).level, 1U);
}

TEST_F(Planner, PicturesShowEverySpan) {
  const StepTime time = time_of(tiny_on("pipeline=2,fsdp=2", 2), hal::find_network("ethernet-1g"), true);
  ASSERT_FALSE(time.spans.empty());
  const auto trace = nlohmann::json::parse(step_trace(time, "tiny"));
  std::size_t shown = 0;
  double device = 0;  // of stage 0
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++shown;
    if (event.at("pid") == time.stage && event.at("tid") == 0) device += event.at("dur").get<double>() * 1e-6;
  }
  EXPECT_EQ(shown, time.spans.size());
  EXPECT_NEAR(device, time.seconds, 1e-9 * time.seconds);
  const std::string page = step_html(time, "tiny <on> x", "about");
  EXPECT_THAT(page, HasSubstr("tiny &lt;on> x"));
  EXPECT_THAT(page, HasSubstr("stage 1, 1 GbE"));
}

TEST_F(Planner, TheSearchFindsWhatItPromises) {
  const TrainerConfig config = tiny_on("");
  const hal::Network& network = hal::find_network("h100-8");
  const MeshSearch search = search_meshes(config, 8, device_->info(), catalog_, classes_, network);
  ASSERT_EQ(search.best.size(), 5U);
  std::int64_t fell = 0;
  for (const auto& [why, count] : search.fell) fell += count;
  EXPECT_LE(fell + 5, search.tried);
  for (std::size_t i = 1; i < search.best.size(); ++i)
    EXPECT_LE(search.best[i - 1].time.seconds, search.best[i].time.seconds);
  // Composed by itself it is the same.
  const FoundMesh& best = search.best.front();
  TrainerConfig again = tiny_on(best.mesh, best.accumulation);
  if (best.remat == "nothing recomputed") {
    EXPECT_DOUBLE_EQ(time_of(again, network).seconds, best.time.seconds);
    EXPECT_EQ(stage_plans(again, catalog_, device_->info()).at(0).peak_bytes, best.peak_bytes);
  }
  EXPECT_LE(best.time.seconds, time_of(tiny_on("fsdp=8"), network).seconds * 1.0001);
  EXPECT_THAT(message_of([&] { search_meshes(config, 1, device_->info(), catalog_, classes_, network); }),
              HasSubstr("needs at least two ranks"));
}

TEST_F(Planner, RulesMakeAMeshOfTheSelectorsDevices) {
  const auto mesh = [&](const std::string& recipe, const std::string& selector) {
    TrainerConfig config = find_recipe(recipe).make();
    resolve(config, {.selector = selector, .ranks = true}, registry_, classes_);
    return Topology(config.mesh->axes()).text();
  };
  EXPECT_EQ(mesh("llama2-70b", "null-tpu-v5p-1024"), "fsdp=1024");
  EXPECT_EQ(mesh("dense-150b", "null-tpu-v5p-32768"), "data=8,fsdp=1024,model=4");
  EXPECT_EQ(mesh("llama2-70b", "null-h100-64"), "data=8,fsdp=8");
  EXPECT_EQ(mesh("llama2-70b", "null-tpu-v5e-512"), "data=2,fsdp=256");
  EXPECT_EQ(mesh("llama2-7b", "null-trn2-16"), "fsdp=2,model=8") << "one row a step";
  EXPECT_EQ(mesh("tiny", "null-rx7900xtx-4"), "data=4");
  EXPECT_EQ(mesh("llama2-70b", "null-rtx4090-8"), "pipeline=8");
  EXPECT_EQ(mesh("llama2-70b", "null-tpu-v5p-1"), "1 rank");
  EXPECT_THAT(message_of([&] { mesh("llama2-70b", "null-h100-12"); }),
              HasSubstr("must be a multiple of the 8"));
  TrainerConfig config = find_recipe("tiny").make();
  resolve(config, {.selector = "null-h100-8"}, registry_, classes_);
  EXPECT_EQ(config.mesh->size(), 1) << "where the devices are not the ranks of the run";
  EXPECT_EQ(devices_of("null-as-tpu-v5p-1024"), 1024);
  EXPECT_EQ(devices_of("vulkan"), 1);
}

}  // namespace
}  // namespace meshloom::trainer
