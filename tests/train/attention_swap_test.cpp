// Latent attention in the place of every attention: one line of text, every recipe; and it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "layers/config/tree.h"
#include "layers/trace.h"
#include "tests/train/short_run.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

const std::string kLatent = "LatentAttention{kv_rank=16 head_dim=16 rotary_dim=8}";

TEST(AttentionSwap, OneReplacementAndEveryOtherLineIsAsBefore) {
  const layers::ClassTable classes = recipe_classes();
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    TrainerConfig config = recipe.make();
    const TrainerConfig before = config;
    std::vector<std::string> dropped;
    EXPECT_EQ(layers::replace(config, "Attention", kLatent, classes, &dropped).size(), 1u);
    for (const std::string& field : dropped) EXPECT_THAT(field, testing::HasSubstr("num_kv_heads"));
    std::istringstream lines(layers::diff(before, config));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_TRUE(std::regex_match(line, std::regex(R"([-+]model\.decoder\.stack\.layer\.attention\b.*)"))) << line;
    EXPECT_GT(count, 4);
    // What both have stays.
    for (const char* field : {"num_heads", "mask", "o_proj.bias", "positions"})
      EXPECT_EQ(layers::get(config, std::string("model.decoder.stack.layer.attention.") + field),
                layers::get(before, std::string("model.decoder.stack.layer.attention.") + field))
          << field;
    EXPECT_FALSE(layers::trace_loss(*config.model, catalog, 1, 8).parameters.empty());
  }
}

TEST(AttentionSwap, Trains) {
  World world;
  const Trained run = world.train("cpu-host-cpu-1", 20, {{}, "Attention", kLatent});
  EXPECT_LT(run.losses.back(), 0.85 * run.losses.front());
}

}  // namespace
}  // namespace meshloom::trainer
