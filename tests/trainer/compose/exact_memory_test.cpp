// Recipes take on every device exactly the memory that was planned for them.
#include <gtest/gtest.h>

#include <span>

#include "tests/trainer/compose/support.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

struct Recipe {
  std::string name, device;
  bool step;  // else the memory is only taken: a step of a real model is long where a CPU plays the GPU
};

class ExactMemory : public ::testing::TestWithParam<Recipe> {};

TEST_P(ExactMemory, PlannedIsAllocated) {
  const std::unique_ptr<hal::Device> device = build().registry.open(GetParam().device);
  const trainer::TrainerConfig config = trainer::find_recipe(GetParam().name).make();
  const trainer::ComposeOptions options = config.compose_options();
  trainer::Session session(
      *device, catalog(),
      trainer::compose_training(*config.model, *config.learner, options, catalog(), device->info()));
  const std::int64_t planned = session.plan().peak_bytes;
  EXPECT_EQ(device->allocated_bytes(), planned);
  if (GetParam().step) {
    trainer::initialize(session, 1);
    const Batch batch = random_batch(options.rows(), options.sequence, 256, 7);
    session.write("tokens", std::as_bytes(std::span(batch.tokens)));
    session.write("targets", std::as_bytes(std::span(batch.targets)));
    session.run(trainer::Step::train);
    std::vector<float> metrics(session.plan().metrics.at("metrics").size());
    session.read("metrics", std::as_writable_bytes(std::span(metrics)));
    EXPECT_EQ(metrics.at(static_cast<std::size_t>(trainer::Metric::applied)), 1);
  }
  EXPECT_EQ(device->peak_bytes(), planned);
  std::int64_t blocks = 0;
  for (const trainer::Block& block : session.plan().blocks) blocks += block.bytes;
  EXPECT_EQ(blocks, planned);
  EXPECT_EQ(device->live_buffers(), static_cast<std::int64_t>(session.plan().blocks.size()));
}

std::vector<Recipe> recipes() {
  std::vector<Recipe> list;
  for (const std::string& device : computing_devices())
    for (const char* name : {"tiny", "tiny-pairs", "byte-llama-10m"})
      list.push_back({name, device, device == "cpu" || std::string(name).starts_with("tiny")});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Found, ExactMemory, ::testing::ValuesIn(recipes()), [](const auto& info) {
  return plain_name(info.param.name + "_" + info.param.device);
});

}  // namespace
}  // namespace meshloom::tests
