#include "trainer/rules/kept_recipe.h"

#include <filesystem>

#include "trainer/input/file.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

TrainerConfig beside(TrainerConfig config, const std::string& folder) {
  const auto file = config.input->tokenizer->file();
  if (!file || !file->path->has_value() || fs::path(file->path->get()).is_absolute()) return config;
  std::error_code ignored;
  if (const std::string here = (fs::path(folder) / file->path->get()).string(); fs::exists(here, ignored))
    *file->path = here;
  return config;
}

}  // namespace

KeptRecipe keep_recipe(TrainerConfig config) {
  KeptRecipe kept;
  if (const auto file = config.input->tokenizer->file()) {
    const std::string path = file->path->get();
    kept.files.emplace_back(file->name, read_file(path, "'" + path + "'"));
    *file->path = std::string(file->name);
  }
  kept.text = print_recipe(config);
  return kept;
}

void put(const KeptRecipe& kept, CheckpointContents& contents) {
  contents.config = kept.text;
  contents.files = kept.files;
}

TrainerConfig recipe_of(const Checkpoint& checkpoint, const layers::ClassTable& classes) {
  return beside(parse_recipe(checkpoint.config, classes, checkpoint.path + "/config.txt"), checkpoint.path);
}

TrainerConfig read_recipe(const std::string& file, const std::string& where, const layers::ClassTable& classes) {
  return beside(parse_recipe(read_file(file, where), classes, file), fs::path(file).parent_path().string());
}

}  // namespace meshloom::trainer
