// Runs that are edited until they fit. The models are small, and so is the memory.
#include "trainer/rules/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/fit_support.h"
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
    return tests::training_plan(config, info);
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
    EXPECT_GE(chosen.update_predicted_seconds(), before) << "less memory is not faster";
    before = chosen.update_predicted_seconds();
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

// Where nothing clips, gradients need not be kept: that costs nothing, and comes first.
TEST_F(Fits, GradientsAreFreedWhereNothingClips) {
  TrainerConfig config = recipe();
  config.batch = 1;  // so that parameters are more than activations
  config.sequence = 16;
  config.learner->clip_norm = 0;
  TrainerConfig freed = config;
  freed.optimizer_in_backward = true;
  const std::int64_t memory = peak(freed);
  ASSERT_LT(memory, peak(config));
  const TrainerConfig started = [&] {
    TrainerConfig edited = config;
    EXPECT_THAT(fit_to(edited, memory),
                HasSubstr("each parameter updated as soon as its gradient is known; "));
    return edited;
  }();
  EXPECT_TRUE(started.optimizer_in_backward);
  EXPECT_EQ(peak(started), memory);
  TrainerConfig again = config;
  fit_to(again, std::int64_t{1} << 40, {{}, &started});
  EXPECT_EQ(layers::diff(again, started), "");
  // A norm to clip by needs them all.
  config = recipe();
  fit_to(config, memory);
  EXPECT_FALSE(config.optimizer_in_backward);
}

// Whatever a driver allocates at once: the loss goes by chunks that it can hold, with Fit and without.
TEST_F(Fits, ScoresLargerThanAnAllocationAreCut) {
  for (const bool fitting : {true, false}) {
    TrainerConfig config = recipe();
    config.fit = fitting;
    const std::int64_t plain = peak(config);
    hal::DeviceInfo info = device(plain)->info();
    info.limits.max_allocation_bytes = 2 * kMiB;  // of 8 MiB of scores
    EXPECT_THROW(plan(config, info), hal::OutOfMemory);
    const std::string said = fitting ? fit(config, info, tests::catalog(), classes_)
                                     : cut_scores(config, info, tests::catalog(), classes_);
    EXPECT_THAT(said, HasSubstr("2.00 MiB")) << fitting;
    const Plan chosen = plan(config, info);
    EXPECT_LE(chosen.peak_bytes, plain);
    for (const Block& block : chosen.blocks) EXPECT_LE(block.bytes, info.limits.max_allocation_bytes);
    TrainerConfig again = config;
    EXPECT_EQ(cut_scores(again, info, tests::catalog(), classes_), "") << "once";
    EXPECT_EQ(layers::diff(again, config), "");
  }
  TrainerConfig config = recipe();
  EXPECT_EQ(cut_scores(config, device(kMiB << 10)->info(), tests::catalog(), classes_), "");
}

TEST_F(Fits, OtherProgramsOfTheRunCount) {
  TrainerConfig config = recipe();
  const std::int64_t plain = peak(config);
  const auto logits = [](const TrainerConfig& config, ComposeOptions options, const hal::DeviceInfo& device) {
    options.logits_batch = 8;
    options.logits_sequence = 1024;
    return compose_training(*config.model, *config.learner, options, tests::catalog(), device);
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
      const std::int64_t most = plan(config, device(std::int64_t{1} << 32, id)->info()).peak_bytes;
      const auto opened = device(small ? most / 2 : most, id);
      const std::string said = fit(config, opened->info(), tests::catalog(), classes_);
      EXPECT_EQ(said.empty(), !small) << id;
      losses.push_back(tests::losses_of(config, *opened, batch, 3));
    }
    for (std::size_t step = 0; step < losses[0].size(); ++step)
      EXPECT_NEAR(losses[0][step], losses[1][step], 1e-5 * losses[0][step]) << id << ", step " << step;
  }
}

}  // namespace
}  // namespace meshloom::trainer
