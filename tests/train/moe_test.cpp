// A mixture of experts in the place of every feed-forward: one line of text, every recipe, every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

#include "layers/config/tree.h"
#include "layers/trace.h"
#include "tests/train/short_run.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

const std::string kMoE = "MoE{num_experts=8}";

TEST(MoeRecipes, OneReplacementAndEveryOtherLineIsAsBefore) {
  const layers::ClassTable classes = recipe_classes();
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    TrainerConfig config = recipe.make();
    const TrainerConfig before = config;
    std::vector<std::string> dropped;
    EXPECT_EQ(layers::replace(config, "FeedForward", kMoE, classes, &dropped).size(), 1u);
    EXPECT_THAT(dropped, testing::IsEmpty());
    std::istringstream lines(layers::diff(before, config));
    const std::regex expected(
        R"((-.*\.feed_forward: FeedForward)|(\+.*\.feed_forward: MoE)|(\+.*\.feed_forward\.(num_experts|gating|shared)\b.*))");
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) EXPECT_TRUE(std::regex_match(line, expected)) << line;
    EXPECT_GT(count, 4);
    const layers::Traced traced = layers::trace_loss(*config.model, catalog, 1, 8);
    EXPECT_GT(traced.summaries.size(), 0u);
    // And back again.
    layers::replace(config, "MoE", "FeedForward{}", classes);
    EXPECT_EQ(layers::diff(before, config), "");
  }
}

class MoeRuns : public testing::TestWithParam<const char*> {};

constexpr int kSteps = 20;

const Trained& reference(World& world) {
  static const Trained run = world.train("cpu-host-cpu-1", kSteps, {"reference", "FeedForward", kMoE});
  return run;
}

TEST_P(MoeRuns, TinyTrainsAsTheReferenceDoes) {
  World world;
  const std::string backend = GetParam();
  if (const std::string why = world.why_none(backend); !why.empty()) GTEST_SKIP() << why;
  const std::string profile = backend == "cpu" ? "host-cpu" : "h100";
  const Trained run = world.train(backend + "-as-" + profile + "-1", kSteps, {{}, "FeedForward", kMoE});
  const Trained& want = reference(world);
  // A choice between experts of almost equal scores may fall differently; they start almost equal themselves.
  for (std::size_t step = 0; step < kSteps; ++step)
    EXPECT_LE(std::fabs(run.losses[step] - want.losses[step]), 2e-4 * want.losses[step]) << "step " << step;
  EXPECT_LT(run.losses.back(), 0.85 * run.losses.front());
  for (const auto& [op, variants] : run.variants) EXPECT_FALSE(variants.count("reference")) << op;
}

INSTANTIATE_TEST_SUITE_P(All, MoeRuns, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace meshloom::trainer
