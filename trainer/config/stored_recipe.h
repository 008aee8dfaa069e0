// The recipe in a checkpoint, with the files it needs, so that the checkpoint can be moved and outlives them.
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
  std::vector<std::pair<std::string, std::string>> files;  // name beside the recipe, bytes: the tokenizer's
};

// As it is now. `given` has, by the path that the recipe says, the bytes of files that are not read. Throws Error where a
// file cannot be read.
StoredRecipe store_recipe(TrainerConfig config, const std::map<std::string, std::string>& given = {});
void put(const StoredRecipe& kept, CheckpointContents& contents);

// Throws Error, as parse_recipe does.
TrainerConfig recipe_of(const Checkpoint& checkpoint, const layers::ClassTable& classes);
// Of a file. A tokenizer's file is looked for beside it first.
TrainerConfig read_recipe(const std::string& file, const std::string& where,
                          const layers::ClassTable& classes);

}  // namespace meshloom::trainer
