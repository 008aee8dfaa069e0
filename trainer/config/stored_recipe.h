// The recipe that a checkpoint stores together with the files it needs, so that the checkpoint can be moved.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct StoredRecipe {
  std::string text;
  std::vector<std::pair<std::string, std::string>>
      files;  // the tokenizer's files: name beside the recipe, and bytes
};

// Reads the files that the recipe names, but for those whose bytes are in `given`, by the path in the recipe.
// Throws Error when a file cannot be read.
StoredRecipe store_recipe(TrainerConfig config, const std::map<std::string, std::string>& given = {});
void put(const StoredRecipe& recipe, CheckpointContents& contents);

// Throws Error, as parse_recipe does.
TrainerConfig recipe_of(const Checkpoint& checkpoint, const layers::ClassTable& classes);
// Reads a recipe from a file. The tokenizer's files are searched beside it first.
TrainerConfig read_recipe(const std::string& file, const std::string& where,
                          const layers::ClassTable& classes);

}  // namespace meshloom::trainer
