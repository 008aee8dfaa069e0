// A mixture of experts in the place of every feed-forward: one line of text, every recipe, every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "layers/config/tree.h"
#include "tests/trainer/run/short_run.h"
#include "tests/trainer/run/swap.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {
namespace {

const std::string kMoE = "MoE{num_experts=8}";

TEST(MoeRecipes, OneReplacementAndEveryOtherLineIsAsBefore) {
  swap_in_every_recipe(
      "FeedForward", kMoE,
      R"((-.*\.feed_forward: FeedForward)|(\+.*\.feed_forward: MoE)|(\+.*\.feed_forward\.(num_experts|gating|shared)\b.*))",
      [](const TrainerConfig& before, TrainerConfig& after, const auto& dropped,
         const layers::Traced& traced) {
        EXPECT_THAT(dropped, testing::IsEmpty());
        EXPECT_GT(traced.summaries.size(), 0u);
        // And back again.
        layers::replace(after, "MoE", "FeedForward{}", recipe_classes());
        EXPECT_EQ(layers::diff(before, after), "");
      });
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
  for (const auto& [op, variants] : run.variants) {
    if (world.catalog.contract(op).view) continue;
    EXPECT_FALSE(variants.count("reference")) << op;
  }
}

// The last line of the metrics.
nlohmann::json last_line(const std::string& run) {
  std::istringstream text(tests::read_text(run + "/metrics.jsonl"));
  nlohmann::json json;
  for (std::string line; std::getline(text, line);) json = nlohmann::json::parse(line);
  return json;
}

class MoeProgram : public testing::Test {
 protected:
  // A small run on the CPU; fails the test with what the program says.
  tests::Outcome train(const std::string& out, const std::string& more) {
    const tests::Outcome outcome = tests::meshloom(
        "train --sample 0 --device cpu --set sequence=16 --set batch=2 --set accumulation=2 --set "
        "eval_batches=1 --data " +
        text + " --out " + scratch.path(out) + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  tests::Scratch scratch;
  const std::string text = scratch.file("text", tests::sample_text(20000));
};

// The bias is a state of the model: it moves, outlives a resume, and stands in the checkpoint that generates.
TEST_F(MoeProgram, ABalancingBiasIsPartOfTheModel) {
  const std::string moe =
      "tiny --replace 'FeedForward=MoE{num_experts=4 gating=TopK{score=SigmoidScore{} "
      "capacity=Capacity{factor=1} "
      "regularizers=[LossFreeBalancing{rate=0.01}]}}' ";
  train("whole", moe + "--steps 6");
  train("halves", moe + "--steps 3");
  train("halves", moe + "--steps 6 --resume");
  const std::string model = "/step-00000006/model.safetensors";
  EXPECT_EQ(tests::read_text(scratch.path("halves") + model),
            tests::read_text(scratch.path("whole") + model));
  const SafetensorsFile file(scratch.path("whole") + model);
  const std::string gating = "decoder/stack/layer0/feed_forward/gating/";
  const StoredTensor* bias = file.find(gating + "regularizer0/bias");
  ASSERT_TRUE(bias);
  std::vector<float> values(4);
  file.read(*bias, std::as_writable_bytes(std::span(values)));
  EXPECT_NE(values, std::vector<float>(4, 0.0f));
  const nlohmann::json summaries = last_line(scratch.path("whole")).at("summaries");
  EXPECT_GT(summaries.at(gating + "load_max").get<double>(), 1);
  EXPECT_GT(summaries.at(gating + "dropped").get<double>(), 0);
  const tests::Outcome written =
      tests::meshloom("generate --device cpu --tokens 4 --prompt the --checkpoint " + scratch.path("whole"));
  EXPECT_EQ(written.code, 0) << written.err;
}

// Normalised weights of equal experts: the mixture starts as the model it was made from.
TEST_F(MoeProgram, ExpertsStartAsCopiesOfADenseModel) {
  train("dense", "tiny --steps 4");
  const std::string init = "--init " + scratch.path("dense") + " --steps 1 ";
  train("tuned", init);
  const tests::Outcome outcome =
      train("moe", init + "--replace 'FeedForward=MoE{num_experts=4 gating=TopK{regularizers=[]}}'");
  EXPECT_THAT(outcome.err, testing::HasSubstr("the experts of 2 layers start as copies"));
  const double want = last_line(scratch.path("tuned")).at("loss").get<double>();
  EXPECT_NEAR(last_line(scratch.path("moe")).at("loss").get<double>(), want, 1e-5 * want);
}

INSTANTIATE_TEST_SUITE_P(All, MoeRuns, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace meshloom::trainer
