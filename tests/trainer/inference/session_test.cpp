// Texts in the session of a run, on the parameters that it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/cache/kv_cache.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/inference/generator.h"
#include "trainer/recipes/recipe.h"
#include "trainer/run/run_plan.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::Request;
using trainer::Session;

// Trains the recipe `tiny` on random tokens.
class Training {
 public:
  Training(const trainer::TrainerConfig& config, trainer::Plan plan, hal::Device& device)
      : config_(config), session_(device, inference_catalog(), std::move(plan)) {
    trainer::initialize(session_, 5);
  }
  void step() {
    const float rate = 0.05F;
    session_.write("lr", std::as_bytes(std::span(&rate, 1)));
    const std::vector<std::int32_t> ids = random_tokens(config_.batch * config_.sequence + 1, ++steps_);
    const std::span<const std::int32_t> all(ids);
    session_.write("tokens", std::as_bytes(all.first(all.size() - 1)));
    session_.write("targets", std::as_bytes(all.subspan(1)));
    session_.run(trainer::Step::train);
  }
  // The parameters as they are now.
  trainer::StoredTensors weights() {
    return stored_weights(config_, [&](const layers::ParameterInfo& parameter, std::vector<float>& values) {
      session_.read(parameter.path, std::as_writable_bytes(std::span(values)));
    });
  }
  Session& session() { return session_; }

 private:
  trainer::TrainerConfig config_;
  Session session_;
  std::uint64_t steps_ = 0;
};

trainer::TrainerConfig small() {
  trainer::TrainerConfig config = trainer::tiny();
  config.batch = 2;
  config.sequence = 32;
  return config;
}

// Also where parameters in f32 are rounded in each step here, and are kept in 16 bits there.
TEST(SessionOfARun, WritesTheTextOfGenerate) {
  trainer::TrainerConfig config = small();
  for (const std::string id : {"cpu", "cpu in bf16", "opencl", "vulkan"}) {
    config.dtype = id == "cpu in bf16" ? "bf16" : "f32";
    std::unique_ptr<hal::Device> device;
    try {
      device = inference_registry().open(id.substr(0, id.find(' ')));
    } catch (const hal::Error&) {
      continue;  // there is none
    }
    SCOPED_TRACE(id);
    Training training(config,
                      trainer::compose_run(config, config.compose_options(), {.tokens = 20, .every = 1},
                                           inference_catalog(), device->info()),
                      *device);
    trainer::Generator inside(config, config.sequence, 0, training.session());
    EXPECT_EQ(inside.recomputes(), "");
    const trainer::Prompt prompt{random_tokens(10, 3), {}};
    std::vector<std::vector<std::int32_t>> texts;
    for (int step = 0; step < 3; ++step) {
      training.step();
      const trainer::SamplerOptions sampler{.temperature = step == 1 ? 0.8 : 0, .seed = 4};
      texts.push_back(inside.generate(prompt, 30, sampler));  // longer than the window
      trainer::Generator outside(config, config.sequence, 0, *device, inference_catalog(),
                                 training.weights());
      EXPECT_EQ(texts.back(), outside.generate(prompt, 30, sampler)) << step;
    }
    EXPECT_NE(texts[0], texts[2]);
  }
}

TEST(SessionOfARun, HoldsAnEngine) {
  const trainer::TrainerConfig config = small();
  const std::unique_ptr<hal::Device> device = inference_registry().open("cpu");
  const EngineOptions options{.max_sequences = 3, .step_tokens = 16, .page_size = 4};
  trainer::ComposeOptions compose = config.compose_options();
  compose.decode = trainer::decode_options(trainer::runner_options(options, config), device->info());
  Training training(
      config,
      trainer::compose_training(*config.model, *config.learner, compose, inference_catalog(), device->info()),
      *device);
  Engine engine(config, options, training.session());
  std::vector<std::vector<std::int32_t>> before;
  for (int step = 0; step < 2; ++step) {
    training.step();
    engine.parameters_changed(step + 1);
    Engine alone(config, options, *device, inference_catalog(), training.weights());
    std::vector<std::shared_ptr<RecordedEvents>> heard, expected;
    for (std::uint64_t i = 0; i < 5; ++i) {
      Request request;
      request.prompt = random_tokens(12, 1 + i / 2);
      request.max_tokens = 10;
      request.sampler = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .seed = i};
      heard.push_back(send(engine, request));
      expected.push_back(send(alone, request));
    }
    ASSERT_TRUE(engine.step());
    EXPECT_THAT(message_of([&] { engine.parameters_changed(); }), HasSubstr("no request may have begun"));
    finish_all(engine);
    finish_all(alone);
    std::vector<std::vector<std::int32_t>> texts;
    for (std::size_t i = 0; i < heard.size(); ++i) {
      EXPECT_EQ(heard[i]->ids(), expected[i]->ids()) << i;
      texts.push_back(heard[i]->ids());
    }
    EXPECT_NE(texts, before);
    before = texts;
    EXPECT_EQ(engine.counters().checkpoint_step, step + 1);
    EXPECT_EQ(engine.counters().cached_tokens, alone.counters().cached_tokens * (step + 1));
  }
  EXPECT_THAT(message_of([&] {
                engine.set_weights(std::make_shared<const trainer::StoredTensors>(training.weights()));
              }),
              HasSubstr("parameters of its session must be changed there"));
}

TEST(SessionOfARun, WithoutCachesComputesTheWholeText) {
  const trainer::TrainerConfig config = trainer::tiny_pairs();
  const std::unique_ptr<hal::Device> device = inference_registry().open("cpu");
  const trainer::Plan plan = trainer::compose_run(
      config, config.compose_options(), {.tokens = 20, .every = 1}, inference_catalog(), device->info());
  EXPECT_TRUE(plan.steps.has(trainer::Step::logits));
  EXPECT_THAT(plan.notes.back(), HasSubstr("computes the whole text in front of it: model: "));
  const trainer::Plan without = trainer::compose_run(config, config.compose_options(), {.tokens = 20},
                                                     inference_catalog(), device->info());
  EXPECT_FALSE(without.steps.has(trainer::Step::logits));
}

}  // namespace
}  // namespace meshloom::tests
