// Texts in the session of a run, on the parameters that it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/config/tree.h"
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

// The forward pass over source and text knows nothing of caches.
TEST(Sources, AreReadOnceForTheTextOfTheWholeForwardPass) {
  trainer::TrainerConfig config = trainer::tiny_pairs();
  const trainer::StoredTensors weights = random_weights(config);
  constexpr std::int64_t kLength = 24, kSource = 20;
  for (const std::string id : {"cpu", "cpu in bf16", "opencl", "vulkan"}) {
    config.dtype = id == "cpu in bf16" ? "bf16" : "f32";
    std::unique_ptr<hal::Device> device;
    try {
      device = inference_registry().open(id.substr(0, id.find(' ')));
    } catch (const hal::Error&) {
      continue;  // there is none
    }
    SCOPED_TRACE(id);
    trainer::ComposeOptions options = trainer::inference_options(config);
    options.sequence = options.logits_sequence = kLength;
    options.logits_batch = 1;
    options.logits_source = kSource;
    options.logits_padding = true;
    Session session(*device, inference_catalog(),
                    trainer::compose_inference(*config.model, options, inference_catalog(), device->info()));
    trainer::load_parameters(weights, session);
    trainer::Generator whole(config, kLength, kSource, session),
        cached(config, kLength, kSource, *device, inference_catalog(), weights);
    EXPECT_EQ(whole.recomputes(), "its plan has no program with caches");
    EXPECT_EQ(cached.recomputes(), "");
    std::vector<std::vector<std::int32_t>> texts;
    for (const std::uint64_t source : {1, 2, 1, 3}) {
      const trainer::Prompt prompt{
          random_tokens(3, 9),
          random_tokens(source == 3 ? kSource : 4 + static_cast<std::int64_t>(source), source)};
      const trainer::SamplerOptions sampler{.temperature = 0};
      texts.push_back(cached.generate(prompt, 18, sampler));
      EXPECT_EQ(texts.back(), whole.generate(prompt, 18, sampler)) << source;
    }
    EXPECT_EQ(texts[0], texts[2]);
    EXPECT_NE(texts[0], texts[1]);
    EXPECT_NE(texts[0], texts[3]);
    EXPECT_THAT(message_of([&] {
                  cached.generate({random_tokens(3, 9), random_tokens(kSource + 1, 1)}, 1, {});
                }),
                HasSubstr("must hold at most 20 tokens in its source"));
  }
}

TEST(SessionOfARun, ReadsSources) {
  const trainer::TrainerConfig config = trainer::tiny_pairs();
  const std::unique_ptr<hal::Device> device = inference_registry().open("cpu");
  const trainer::Plan plan = trainer::compose_run(
      config, config.compose_options(), {.tokens = 20, .every = 1}, inference_catalog(), device->info());
  EXPECT_TRUE(plan.steps.has(trainer::Step::encode));
  EXPECT_FALSE(plan.steps.has(trainer::Step::logits));
  EXPECT_GT(plan.memory.at("cache"), 0);
}

TEST(SessionOfARun, WithoutCachesComputesTheWholeText) {
  trainer::TrainerConfig config = small();
  layers::set(config, "model.decoder.stack.layer.attention.distance_bias", "RelativeBias{}",
              trainer::recipe_classes());
  const std::unique_ptr<hal::Device> device = inference_registry().open("cpu");
  const trainer::Plan plan = trainer::compose_run(
      config, config.compose_options(), {.tokens = 20, .every = 1}, inference_catalog(), device->info());
  EXPECT_TRUE(plan.steps.has(trainer::Step::logits));
  EXPECT_THAT(plan.notes.back(), HasSubstr("computes the whole text in front of it: decoder/stack/layer0"));
  const trainer::Plan without = trainer::compose_run(config, config.compose_options(), {.tokens = 20},
                                                     inference_catalog(), device->info());
  EXPECT_FALSE(without.steps.has(trainer::Step::logits));
}

}  // namespace
}  // namespace meshloom::tests
