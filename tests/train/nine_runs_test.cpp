// One recipe, unchanged, on every backend under every kind of profile: the losses of 30 steps agree with those of
// the double-precision reference kernels, and each run used the kernels of its kind.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "hal/registry.h"
#include "kernels/catalog.h"
#include "tests/train/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/input/corpus.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/stepper.h"

namespace meshloom::trainer {
namespace {

constexpr int kSteps = 30;

struct Trained {
  std::vector<double> losses;
  std::set<std::string> matmul, attention;  // variants
};

class World {
 public:
  World() : classes_(recipe_classes()) {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
    corpus_ = read_corpus({scratch_.file("text", tests::sample_text(20000))}, {}, 0.1, *byte_tokenizer(), 256, 64);
  }

  Trained train(const std::string& selector, const std::string& variant = {}) {
    TrainerConfig config = tiny();
    resolve(config, {.selector = selector}, registry, classes_);
    if (!variant.empty()) {
      KernelRuleConfig rule;
      rule.variant = variant;
      config.kernels.emplace_back(rule);
    }
    config.check();
    const auto device = open_device(config, registry);
    Plan plan = compose_training(*config.model, *config.learner, config.compose_options(), catalog, device->info());
    Trained run;
    for (const auto& [name, planned] : plan.programs)
      for (const kernels::Call& call : planned.program.calls) {
        if (!call.choice || !call.choice->variant) continue;
        if (call.op == "matmul") run.matmul.insert(call.choice->variant->name);
        if (call.op.starts_with("flash_attention")) run.attention.insert(call.choice->variant->name);
      }
    Session session(*device, catalog, std::move(plan));
    EXPECT_EQ(device->allocated_bytes(), session.plan().peak_bytes);
    initialize(session, static_cast<std::uint64_t>(config.seed));
    Stepper stepper(config, session, corpus_.train(), corpus_.eval());
    for (int step = 0; step < kSteps; ++step) run.losses.push_back(stepper.step(step).loss);
    EXPECT_EQ(device->peak_bytes(), session.plan().peak_bytes);
    return run;
  }

  hal::Registry registry;
  kernels::Catalog catalog;

 private:
  layers::ClassTable classes_;
  tests::Scratch scratch_;
  Corpus corpus_;
};

const Trained& reference(World& world) {
  static const Trained run = world.train("cpu-host-cpu-1", "reference");
  return run;
}

class NineRuns : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(NineRuns, AgreeWithTheReference) {
  const auto [backend, profile] = GetParam();
  World world;
  std::string why_none = "this backend was not built";
  for (const hal::Listing& listing : world.registry.list())
    if (listing.backend == backend) why_none = listing.devices.empty() ? listing.why_none : "";
  if (!why_none.empty()) GTEST_SKIP() << why_none;
  const Trained run = world.train(std::string(backend) + "-as-" + profile + "-1");
  const Trained& want = reference(world);
  for (std::size_t step = 0; step < kSteps; ++step)
    EXPECT_LE(std::fabs(run.losses[step] - want.losses[step]), 1e-4 * want.losses[step]) << "step " << step;
  EXPECT_LT(run.losses.back(), 0.8 * run.losses.front());
  const std::string kind = profile;
  const std::set<std::string> matmul{kind == "h100" ? "gpu_tile" : kind == "trn2" ? "trainium_psum" : "tpu_stationary"};
  const std::set<std::string> attention{kind == "h100"   ? "gpu_tile"
                                        : kind == "trn2" ? "trainium_partition"
                                                         : "tpu_splash"};
  EXPECT_EQ(run.matmul, matmul);
  EXPECT_EQ(run.attention, attention);
}

INSTANTIATE_TEST_SUITE_P(All, NineRuns,
                         testing::Combine(testing::Values("cpu", "opencl", "vulkan"),
                                          testing::Values("h100", "tpu-v5e", "trn2")),
                         [](const auto& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

// The check above would see a wrong kernel: another learning rate is another run.
TEST(NineRunsControl, ADifferentRunIsSeen) {
  World world;
  const Trained own = world.train("cpu-host-cpu-1");
  double worst = 0;
  for (std::size_t step = 1; step < kSteps; ++step)
    worst = std::max(worst, std::fabs(own.losses[step] - own.losses[step - 1]) / own.losses[step]);
  EXPECT_GT(worst, 1e-3);
}

}  // namespace
}  // namespace meshloom::trainer
