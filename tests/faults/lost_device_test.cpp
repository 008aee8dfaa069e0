// A run whose device is lost opens it again and goes on to the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/faults/losing_device.h"
#include "tests/faults/small_run.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/compose/compose.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/state/snapshots.h"
#include "trainer/run/train.h"

namespace meshloom::trainer {
namespace {

using testing::HasSubstr;
using Edits = std::map<std::string, std::string>;

constexpr int kSteps = 5;
constexpr const char* kProfile = "rx7900xtx";

class LostDevice : public testing::Test {
 protected:
  LostDevice() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    scratch_.file("text", tests::sample_text(3000));
  }

  TrainerConfig config(const Edits& edits) const {
    TrainerConfig config = tiny();
    Edits all{{"sequence", "8"},
              {"batch", "2"},
              {"model.decoder.stack.num_layers", "1"},
              {"eval_batches", "0"},
              {"checkpoint_every", "0"},
              {"hardware_rules", "false"},
              {"steps", std::to_string(kSteps)},
              {"snapshot_seconds", "1e-9"}};
    for (const auto& [path, value] : edits) all[path] = value;
    for (const auto& [path, value] : all) layers::set(config, path, value, classes_);
    if (config.input->files.empty()) config.input->files = {scratch_.path("text")};
    // A profile with given rates, so that nothing measures the device between the steps.
    resolve(config, {.device = "cpu", .as = kProfile}, registry_, classes_);
    config.check();
    return config;
  }
  std::unique_ptr<hal::Device> open(Losses& losses) const {
    return std::make_unique<LosingDevice>(registry_.open("cpu", kProfile), losses);
  }
  TrainOptions options(const std::string& run, Losses& losses) const {
    TrainOptions options;
    options.out = scratch_.path(run);
    options.silent = true;
    options.sample.tokens = 0;
    options.auto_resume = true;
    options.reward = reward_;
    options.open_device = [this, &losses] { return open(losses); };
    return options;
  }
  TrainResult train(const std::string& run, const Edits& edits, Losses& losses) {
    notes_.clear();
    std::unique_ptr<hal::Device> device = open(losses);
    const std::function<void(const std::string&)> note = [this](const std::string& text) {
      notes_ += text + "\n";
    };
    return trainer::train(config(edits), options(run, losses), device, catalog_, classes_, note);
  }
  // What a run leaves behind.
  struct Left {
    std::vector<std::pair<int, double>> losses;
    std::string model, optimizer, rollouts;
    bool operator==(const Left&) const = default;
  };
  Left left(const std::string& run, int step = kSteps) const {
    const std::string checkpoint = checkpoint_path(scratch_.path(run), step) + "/";
    return {tests::losses(scratch_.path(run)), tests::read_text(checkpoint + "model.safetensors"),
            tests::read_text(checkpoint + "optimizer.safetensors"),
            reward_.empty() ? "" : tests::read_text(scratch_.path(run) + "/rollouts.jsonl")};
  }
  // Those of a run that learns from rewards.
  Edits answers(const std::string& more) {
    reward_ = "while read -r line; do echo ${#line}; done";
    const std::string prompts = scratch_.file("prompts.jsonl", "{\"prompt\": \"ab\"}\n{\"prompt\": \"c\"}\n");
    return {{"model.loss", "GRPOLoss{}"},
            {"input", "JsonlPrompts{files=[\"" + prompts +
                          "\"] completions_per_prompt=2 max_completion_tokens=3 " + more + "}"}};
  }
  void clear(const std::string& run) const { std::filesystem::remove_all(scratch_.path(run)); }
  // The lines of metrics.jsonl that say that the device was lost.
  int lines_with_losses(const std::string& run) const {
    std::istringstream text(tests::read_text(scratch_.path(run) + "/metrics.jsonl"));
    int count = 0;
    for (std::string line; std::getline(text, line);)
      count += nlohmann::json::parse(line).contains("device_losses");
    return count;
  }
  // The steps whose loss stands in the event files.
  int events(const std::string& run) const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path(run)))
      if (entry.path().filename().string().starts_with("events")) {
        const std::string text = tests::read_text(entry.path());
        for (std::size_t at = 0; (at = text.find("loss/train", at)) != std::string::npos; ++at) ++count;
      }
    return count;
  }

  // Loses the device at every call of a run, one after another.
  void at_every_call(const Edits& edits, int stride) {
    Losses none;
    train("whole", edits, none);
    const Left whole = left("whole");
    ASSERT_EQ(whole.losses.size(), static_cast<std::size_t>(kSteps));
    ASSERT_GT(whole.model.size(), 1000u);
    for (int call = 1; call <= none.calls; call += stride) {
      SCOPED_TRACE("lost at call " + std::to_string(call) + " of " + std::to_string(none.calls));
      clear("lost");
      Losses once{.at = {call}};
      const TrainResult result = train("lost", edits, once);
      EXPECT_EQ(result.step, kSteps);
      // How many copies are made depends on time, so a run may be over before its last calls.
      if (once.calls >= call) {
        EXPECT_EQ(once.opened, 2);
        EXPECT_THAT(notes_, HasSubstr("the device was lost"));
      } else {
        EXPECT_GT(call, none.calls / 2);
      }
      ASSERT_TRUE(left("lost") == whole);
      EXPECT_EQ(events("lost"), kSteps);
      EXPECT_LE(lines_with_losses("lost"), 1);  // none where it was lost after the last step
    }
  }

  hal::Registry registry_;
  kernels::Catalog catalog_;
  layers::ClassTable classes_ = recipe_classes();
  tests::Scratch scratch_;
  std::string notes_, reward_;
};

TEST_F(LostDevice, GoesOnFromTheHostsMemory) {
  at_every_call({{"accumulation", "2"}, {"learner.ema", "Ema{}"}}, 1);
}

TEST_F(LostDevice, GoesOnFromTheNewestCheckpoint) {
  at_every_call(
      {{"snapshot_seconds", "0"}, {"checkpoint_every", "2"}, {"eval_batches", "1"}, {"eval_every", "2"}},
      tests::all_faults() ? 1 : 3);
}

// Lost while answers are written, while they are learned from, and in between.
TEST_F(LostDevice, WritesTheSameAnswersAgain) { at_every_call(answers(""), tests::all_faults() ? 1 : 7); }

// Steps go on with what was written in front of an earlier one.
TEST_F(LostDevice, KeepsTheAnswersOfAnEarlierStep) {
  at_every_call(answers("steps_per_generation=3"), tests::all_faults() ? 1 : 7);
}

// Each loss comes after a step that is new.
TEST_F(LostDevice, GoesOnAfterManyLosses) {
  Losses none;
  train("whole", {}, none);
  ASSERT_EQ(none.submits, kSteps);
  // The second step, and one that comes after at most two repeated ones.
  Losses several{.at_submit = {2, 6}};
  EXPECT_EQ(train("lost", {}, several).step, kSteps);
  EXPECT_EQ(several.opened, 3);
  EXPECT_TRUE(left("lost") == left("whole"));
  EXPECT_EQ(lines_with_losses("lost"), 2);
}

// A step that is repeated must have the loss that it had before.
TEST_F(LostDevice, SaysThatARepeatedStepIsDifferent) {
  const Edits edits{{"snapshot_seconds", "1000"}};  // the copy of step 0 alone
  Losses none;
  train("whole", edits, none);
  for (const bool corrupts : {false, true}) {
    clear("lost");
    Losses late{.at_submit = {none.submits - 1}, .corrupts_losses = corrupts};
    EXPECT_EQ(train("lost", edits, late).step, kSteps);
    EXPECT_THAT(notes_, HasSubstr("goes on after step 0, from the host's memory"));
    EXPECT_EQ(notes_.find("one of the two was computed wrongly") != std::string::npos, corrupts) << notes_;
    EXPECT_EQ(tests::losses(scratch_.path("lost")).size(), static_cast<std::size_t>(kSteps));
  }
}

// Two copies of each parameter and of AdamW's two states of it, and little more.
TEST_F(LostDevice, TheHostsMemoryIsCounted) {
  const TrainerConfig tiny = config({});
  const auto device = registry_.open("cpu", kProfile);
  const Plan plan =
      compose_training(*tiny.model, *tiny.learner, tiny.compose_options(), catalog_, device->info());
  const std::int64_t expected = 2 * 3 * 4 * plan.parameter_count();
  EXPECT_GE(Snapshots::bytes(plan), expected);
  EXPECT_LE(Snapshots::bytes(plan),
            expected + 2 * 128 * static_cast<std::int64_t>(plan.persistent_types.size()));
}

// The device is lost in every step after the third: the run ends, what it has is saved, and another continues it.
TEST_F(LostDevice, EndsAfterThreeLossesWithoutANewStep) {
  Losses none;
  train("whole", {}, none);
  Losses many{.from_submit = none.submits - 1};
  const std::string message = tests::message_of([&] { train("lost", {}, many); });
  EXPECT_THAT(message, HasSubstr("must not be lost 3 times without a new step"));
  EXPECT_THAT(message, HasSubstr("accumulation"));
  EXPECT_EQ(many.opened, 3);
  EXPECT_THAT(notes_, HasSubstr("before the run ended"));
  const std::vector<std::int64_t> saved = checkpoint_steps(scratch_.path("lost"));
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_LE(saved[0], kSteps - 2);
  EXPECT_EQ(train("lost", {}, none).step, kSteps);
  EXPECT_TRUE(left("lost") == left("whole"));
}

TEST_F(LostDevice, EndsTheRunWhereNoneCanBeOpened) {
  Losses losses{.at = {60}};
  std::unique_ptr<hal::Device> device = open(losses);
  TrainOptions alone = options("lost", losses);
  alone.open_device = {};
  const auto ignore = [](const std::string&) {};
  EXPECT_THAT(
      tests::message_of([&] { trainer::train(config({}), alone, device, catalog_, classes_, ignore); }),
      HasSubstr("must answer; found none at"));
  Losses again{.at = {60}};
  device = open(again);
  alone.open_device = [&]() -> std::unique_ptr<hal::Device> {
    auto other = std::make_unique<LosingDevice>(registry_.open("cpu", kProfile), again);
    other->rename("another card");
    return other;
  };
  EXPECT_THAT(
      tests::message_of([&] { trainer::train(config({}), alone, device, catalog_, classes_, ignore); }),
      HasSubstr("another one, another card"));
}

// A device that hangs in a step when TERM comes: the newest copy is saved by another thread, which ends the process.
TEST_F(LostDevice, AHangDoesNotKeepASignalWaiting) {
  Losses none;
  train("whole", {}, none);
  const pid_t child = ::fork();
  if (child == 0) {
    Losses losses;
    losses.before = [&losses, limit = none.submits - 1] {
      if (losses.submits < limit) return;
      std::raise(SIGTERM);
      for (;;) ::pause();
    };
    std::unique_ptr<hal::Device> device = open(losses);
    TrainOptions hanging = options("hung", losses);
    hanging.leave = [](const TrainResult& result, int code) {
      ::_exit(result.stopped && std::filesystem::exists(result.checkpoint) ? code : 99);
    };
    trainer::train(config({}), hanging, device, catalog_, classes_, [](const std::string&) {});
    ::_exit(98);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 130);
  const std::vector<std::int64_t> saved = checkpoint_steps(scratch_.path("hung"));
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_LT(saved[0], kSteps);
  EXPECT_EQ(train("hung", {}, none).step, kSteps);
  EXPECT_TRUE(left("hung") == left("whole"));
}

}  // namespace
}  // namespace meshloom::trainer
