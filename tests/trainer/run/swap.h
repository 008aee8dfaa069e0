// One class for another in every recipe, by one line of text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// Puts `with` into the place of every node of class `from` in each recipe. Every line that differs
// afterwards matches `lines`, and the model traces; `more(before, after, dropped, traced)` looks further.
template <typename More>
void swap_in_every_recipe(const std::string& from, const std::string& with, const std::string& lines,
                          More more) {
  const layers::ClassTable classes = recipe_classes();
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    TrainerConfig config = recipe.make();
    int found = 0;
    layers::visit(
        config, [&](const std::string&, const layers::Config& node) { found += node.class_name() == from; });
    if (found == 0 && recipe.name == "qwen3-30b-a3b") continue;  // of experts already
    const TrainerConfig before = config;
    std::vector<std::string> dropped;
    const std::size_t sides = layers::reads_source(*config.model) ? 2 : 1;
    EXPECT_EQ(layers::replace(config, from, with, classes, &dropped).size(), sides);
    std::istringstream differences(layers::diff(before, config));
    int count = 0;
    for (std::string line; std::getline(differences, line); ++count)
      EXPECT_TRUE(std::regex_match(line, std::regex(lines))) << line;
    EXPECT_GT(count, 4);
    more(before, config, dropped, layers::trace_loss(*config.model, catalog, 1, 8));
  }
}

}  // namespace meshloom::trainer
