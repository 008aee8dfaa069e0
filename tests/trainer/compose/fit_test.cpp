// Runs that are edited until they fit. The models are small, and so is the memory.
#include "trainer/rules/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/report.h"
#include "trainer/config/trainer_config.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

// tiny with more to save: longer rows, and a vocabulary whose scores are the largest tensor.
TrainerConfig recipe() {
  TrainerConfig config = tiny();
  config.model.as<layers::CausalLM::Config>()->vocab_size = 2048;
  config.batch = 8;
  config.sequence = 128;
  config.fit = true;
  return config;
}

class Fits : public testing::Test {
 protected:
  std::unique_ptr<hal::Device> device(std::int64_t memory, const std::string& id = "null") {
    auto device = tests::build().registry.open(id);
    device->limit_memory(memory);
    return device;
  }
  std::string fit_to(TrainerConfig& config, std::int64_t memory, const FitOptions& options = {},
                     const std::string& id = "null") {
    return fit(config, device(memory, id)->info(), tests::catalog(), classes_, options);
  }
  Plan plan(const TrainerConfig& config, const hal::DeviceInfo& info) {
    ComposeOptions options = config.compose_options();
    options.enforce_memory = false;
    return compose_training(*config.model, *config.learner, options, tests::catalog(), info);
  }
  std::int64_t peak(const TrainerConfig& config) { return plan(config, device(1 << 30)->info()).peak_bytes; }

  layers::ClassTable classes_ = recipe_classes();
};

TEST_F(Fits, WhatFitsStaysAsItIs) {
  TrainerConfig config = recipe();
  EXPECT_EQ(fit_to(config, peak(config)), "");
  EXPECT_FALSE(config.fit);
  config.fit = true;
  EXPECT_EQ(layers::diff(config, recipe()), "");
}

TEST_F(Fits, TheChoiceFitsAndIsTheFastestThatDoes) {
  const std::int64_t most = peak(recipe());
  std::int64_t least = 0;
  double before = 0;
  for (const double part : {0.9, 0.7, 0.5, 0.4, 0.3}) {
    const auto memory = static_cast<std::int64_t>(part * static_cast<double>(most));
    TrainerConfig config = recipe();
    const std::string said = fit_to(config, memory);
    const Plan chosen = plan(config, device(memory)->info());
    if (chosen.peak_bytes > memory) {
      EXPECT_THAT(said,
                  HasSubstr("no choice of micro-batches, remat, chunks of the loss and offload fits into"));
      EXPECT_THAT(said, HasSubstr("the least is " + readable_bytes(chosen.peak_bytes)));
      least = chosen.peak_bytes;
      continue;
    }
    EXPECT_THAT(said, HasSubstr("to fit into " + readable_bytes(memory)));
    EXPECT_THAT(said, HasSubstr(readable_bytes(chosen.peak_bytes)));
    EXPECT_GE(chosen.update_roofline_seconds(), before) << "less memory is not faster";
    before = chosen.update_roofline_seconds();
    TrainerConfig again = recipe();
    EXPECT_EQ(fit_to(again, memory), said) << "the same each time";
    EXPECT_EQ(layers::diff(again, config), "");
    EXPECT_NO_THROW(config.check());
  }
  EXPECT_GT(before, 0) << "some must fit";
  // Exactly the least that was said does.
  if (least > 0) {
    TrainerConfig config = recipe();
    EXPECT_THAT(fit_to(config, least), HasSubstr("to fit into"));
    EXPECT_EQ(peak(config), least);
  }
}

TEST_F(Fits, WhatTheRecipeChoosesIsKept) {
  TrainerConfig config = recipe();
  layers::set(config, "remat", "[RematRule{tag=\"**norm\" save=false}]", classes_);
  config.accumulation = 2;
  const std::string remat = layers::get(config, "remat");
  fit_to(config, peak(config) / 2);
  EXPECT_EQ(layers::get(config, "remat"), remat);
  EXPECT_GE(config.accumulation, 2);
}

TEST_F(Fits, ARunThatContinuesTakesItsChoiceAgain) {
  TrainerConfig started = recipe();
  fit_to(started, peak(started) / 2);
  ASSERT_NE(layers::diff(started, recipe()), "");
  const TrainerConfig stored = parse_recipe(print_recipe(started), classes_, "recipe.txt");
  for (const std::int64_t memory : {kMiB, std::int64_t{1} << 40}) {
    TrainerConfig config = recipe();
    fit_to(config, memory, {{}, &stored});
    EXPECT_EQ(layers::diff(config, started), "") << "whatever the memory is now";
  }
}

TEST_F(Fits, OtherProgramsOfTheRunCount) {
  TrainerConfig config = recipe();
  const std::int64_t plain = peak(config);
  const auto logits = [](ComposeOptions& options) {
    options.logits_batch = 8;
    options.logits_sequence = 1024;
  };
  EXPECT_THAT(fit_to(config, plain, {logits, nullptr}), testing::Not(testing::IsEmpty()));
}

// On every device that computes: what is planned is allocated, and the losses are those of the run without Fit.
TEST_F(Fits, TheSameLossesInLessMemory) {
  const tests::Batch batch = tests::random_batch(8, 128, 2048, 3);
  for (const std::string& id : tests::computing_devices()) {
    std::vector<std::vector<double>> losses;
    for (const bool small : {false, true}) {
      TrainerConfig config = recipe();
      const auto large = device(std::int64_t{1} << 32, id);
      const std::int64_t most = plan(config, large->info()).peak_bytes;
      const auto opened = device(small ? most / 2 : most, id);
      const std::string said = fit(config, opened->info(), tests::catalog(), classes_);
      EXPECT_EQ(said.empty(), !small) << id;
      Session session(*opened, tests::catalog(), plan(config, opened->info()));
      EXPECT_EQ(opened->peak_bytes(), session.plan().peak_bytes);
      initialize(session, 1);
      const float rate = 1e-2f;
      session.write("lr", std::as_bytes(std::span(&rate, 1)));
      losses.emplace_back();
      for (int step = 0; step < 3; ++step) {
        const UpdateStep part = session.plan().steps.update.front();
        const std::int64_t ids = 8 * 128 / part.times;
        for (std::int64_t i = 0; i < part.times; ++i) {
          const auto rows = [&](const std::vector<std::int32_t>& all) {
            return std::as_bytes(
                std::span(all).subspan(static_cast<std::size_t>(i * ids), static_cast<std::size_t>(ids)));
          };
          session.write("tokens", rows(batch.tokens));
          session.write("targets", rows(batch.targets));
          session.run(part.step);
        }
        for (std::size_t i = 1; i < session.plan().steps.update.size(); ++i)
          session.run(session.plan().steps.update[i].step);
        std::vector<float> metrics(
            static_cast<std::size_t>(session.plan().persistent_types.at("metrics").elements()));
        session.read("metrics", std::as_writable_bytes(std::span(metrics)));
        losses.back().push_back(metrics[0] / metrics[1]);
      }
    }
    for (std::size_t step = 0; step < losses[0].size(); ++step)
      EXPECT_NEAR(losses[0][step], losses[1][step], 1e-5 * losses[0][step]) << id << ", step " << step;
  }
}

}  // namespace
}  // namespace meshloom::trainer
