#include "trainer/config/stored_recipe.h"

#include <filesystem>

#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

TrainerConfig beside(TrainerConfig config, const std::string& folder) {
  std::error_code ignored;
  for (const TokenizerConfig::File& file : config.input->tokenizer->files())
    if (*file.path && !fs::path(**file.path).is_absolute())
      if (const std::string here = (fs::path(folder) / **file.path).string(); fs::exists(here, ignored))
        *file.path = here;
  return config;
}

}  // namespace

StoredRecipe store_recipe(TrainerConfig config, const std::map<std::string, std::string>& given) {
  StoredRecipe recipe;
  for (const TokenizerConfig::File& file : config.input->tokenizer->files()) {
    if (!*file.path) continue;
    const auto found = given.find(**file.path);
    recipe.files.emplace_back(
        file.name, found != given.end() ? found->second : read_file(**file.path, "'" + **file.path + "'"));
    *file.path = std::string(file.name);
  }
  recipe.text = print_recipe(config);
  return recipe;
}

void put(const StoredRecipe& recipe, CheckpointContents& contents) {
  contents.config = recipe.text;
  contents.files = recipe.files;
}

TrainerConfig recipe_of(const Checkpoint& checkpoint, const layers::ClassTable& classes) {
  return beside(parse_recipe(checkpoint.config, classes, checkpoint.path + "/config.txt"), checkpoint.path);
}

TrainerConfig read_recipe(const std::string& file, const std::string& where,
                          const layers::ClassTable& classes) {
  return beside(parse_recipe(read_file(file, where), classes, file), fs::path(file).parent_path().string());
}

}  // namespace meshloom::trainer
