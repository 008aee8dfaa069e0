// Steps that are not taken: one whose gradient is not finite, and one that is interrupted.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "layers/config/tree.h"
#include "tests/trainer/learner/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/data/corpus.h"
#include "trainer/execute/session.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/step_runner.h"

namespace meshloom::trainer {
namespace {

using Bytes = std::vector<std::byte>;

// A recipe on the CPU, ready to step.
struct TinyRun {
  hal::Registry registry;
  kernels::Catalog catalog;
  tests::Scratch scratch;
  TrainerConfig config = tiny();
  Corpus corpus;
  std::unique_ptr<hal::Device> device;
  std::unique_ptr<Session> session;
  std::unique_ptr<StepRunner> stepper;

  explicit TinyRun(const std::vector<std::pair<std::string, std::string>>& replaced,
                   std::int64_t accumulation, const std::string& dtype = "f32") {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
    const layers::ClassTable classes = recipe_classes();
    for (const auto& [from, to] : replaced) layers::replace(config, from, to, classes);
    config.accumulation = accumulation;
    config.sequence = 16;
    config.batch = 4;
    config.dtype = dtype;
    resolve(config, {.selector = "cpu-host-cpu-1"}, registry, classes);
    config.check();
    corpus =
        read_corpus({scratch.file("text", tests::sample_text(4000))}, {}, 0.1, *byte_tokenizer(), 256, 16);
    device = open_device(config, registry);
    session = std::make_unique<Session>(
        *device, catalog,
        compose_training(*config.model, *config.learner, config.compose_options(), catalog, device->info()));
    initialize(*session, 0);
    start();
  }
  void start() {
    stepper = std::make_unique<StepRunner>(
        config, *session, std::make_unique<TextWindows>(corpus.train(), config.batch, config.sequence, 0),
        nullptr);
  }
  Bytes read(const std::string& name) {
    Bytes bytes(static_cast<std::size_t>(session->plan().persistent_types.at(name).bytes()));
    session->read(name, bytes);
    return bytes;
  }
  // What the next step starts from.
  std::map<std::string, Bytes> state() {
    std::map<std::string, Bytes> all;
    for (const layers::ParameterInfo& info : session->plan().parameters) all[info.path] = read(info.path);
    for (const auto& [name, type] : session->plan().states) all[name] = read(name);
    for (const auto& [name, type] : session->plan().persistent_types)
      if (name.starts_with("optimizer/") && !name.starts_with("optimizer/loss_scale")) all[name] = read(name);
    return all;
  }
};

const std::string kExperts =
    "MoE{num_experts=4 gating=TopK{score=SigmoidScore{} regularizers=[LossFreeBalancing{rate=0.01}]}}";

class Skipped : public testing::TestWithParam<std::int64_t> {};

TEST_P(Skipped, LeavesEveryStateBitwise) {
  std::vector<std::string> learners{"AdamW{ema=Ema{}}"};
  for (const std::string& name : tests::learner_names())
    if (name != "AdamW") learners.push_back(name + "{}");
  ASSERT_GE(learners.size(), 7u);
  for (const std::string& learner : learners) {
    SCOPED_TRACE(learner);
    TinyRun run({{"FeedForward", kExperts}, {"AdamW", learner}}, GetParam());
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(run.stepper->step(step).applied);
    // One weight of the head makes every logit NaN, and leaves routing as it is; one of the router makes that
    // NaN, too.
    for (const char* broken : {"head/weight", "gating"}) {
      std::string path;
      for (const layers::ParameterInfo& info : run.session->plan().parameters)
        if (path.empty() && info.path.find(broken) != std::string::npos) path = info.path;
      ASSERT_FALSE(path.empty()) << broken;
      const Bytes whole = run.read(path);
      Bytes bytes = whole;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data(), &nan, sizeof nan);
      run.session->write(path, bytes);
      const auto before = run.state();
      for (int step = 2; step < 4; ++step) {
        EXPECT_FALSE(run.stepper->step(step).applied);
        for (const auto& [name, value] : run.state()) EXPECT_TRUE(value == before.at(name)) << name;
      }
      run.session->write(path, whole);
    }
    const auto before = run.state();
    EXPECT_TRUE(run.stepper->step(4).applied);
    int moved = 0;
    for (const auto& [name, value] : run.state()) moved += value != before.at(name);
    EXPECT_GT(moved, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, Skipped, testing::Values(1, 2));

// The bias moves with every micro-batch, as it did before a skip could take that back.
TEST(Skipped, ABiasMovesPerMicroBatch) {
  TinyRun run({{"FeedForward", kExperts}}, 2);
  run.stepper->step(0);
  double highest = 0;
  for (const auto& [name, type] : run.session->plan().states) {
    const Bytes bytes = run.read(name);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      highest = std::max(highest, std::fabs(static_cast<double>(value)));
    }
  }
  EXPECT_NEAR(highest, 0.02, 1e-6);
}

TEST(Interrupted, BetweenMicroBatchesNothingIsUpdated) {
  TinyRun run({}, 4);
  run.stepper->step(0);
  const auto before = run.state();
  int asked = 0;
  run.stepper->interrupt_when([&] { return ++asked == 2; });
  const StepResult result = run.stepper->step(1);
  EXPECT_TRUE(result.interrupted);
  EXPECT_FALSE(run.stepper->updating());
  EXPECT_EQ(asked, 2);
  for (const auto& [name, value] : run.state()) EXPECT_TRUE(value == before.at(name)) << name;
}

// A device whose count of updates is wrong has not run one of the steps.
TEST(Updates, AreCounted) {
  TinyRun run({}, 1);
  run.stepper->step(0);
  const float none = 0;
  run.session->write("optimizer/step", std::as_bytes(std::span(&none, 1)));
  EXPECT_THROW(run.stepper->step(1), hal::DeviceLost);
  EXPECT_TRUE(run.stepper->updating());
}

// Of micro-batches with other numbers of tokens, each counts by its tokens. Equal tokens go to equal experts,
// which have room for 32 of a row: of the long texts half is dropped, of the short one nothing.
TEST(Summaries, OfMicroBatchesAreWeightedByTokens) {
  const tests::Scratch scratch;
  std::string lines;
  for (const std::size_t length : {62, 62, 62, 6})
    lines += R"({"text": ")" + std::string(length, 'x') + "\"}\n";
  const std::string data = scratch.file("data.jsonl", lines);
  const auto summary = [&](const std::string& accumulation) {
    const std::string out = scratch.path("run" + accumulation);
    const tests::Outcome outcome = tests::meshloom(
        "train tiny --device cpu --sample 0 --steps 1 --set batch=4 --set sequence=64 --set eval_batches=0 "
        "--set model.decoder.stack.num_layers=1 --replace 'FeedForward=MoE{num_experts=4 gating=TopK{k=2 "
        "capacity=Capacity{factor=1}}}' --set accumulation=" +
        accumulation + " --data " + data + " --eval-data " + data + " --out " + out);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(tests::read_text(out + "/metrics.jsonl"));
    for (const auto& [name, value] : json.at("summaries").items())
      if (name.ends_with("/dropped")) return value.get<double>();
    return -1.0;
  };
  const double one = summary("1");
  EXPECT_GT(one, 0.3);
  EXPECT_NEAR(summary("4"), one, 0.02);
}

}  // namespace
}  // namespace meshloom::trainer
