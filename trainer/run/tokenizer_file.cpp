#include "trainer/run/tokenizer_file.h"

#include <filesystem>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

// None for bytes.
layers::Required<std::string>* file_of(TokenizerConfig& tokenizer) {
  if (auto* json = dynamic_cast<TokenizerJsonConfig*>(&tokenizer)) return &json->file;
  if (auto* pieces = dynamic_cast<SentencePieceConfig*>(&tokenizer)) return &pieces->model;
  return nullptr;
}

fs::path copy_in(const std::string& directory, const fs::path& file) {
  return fs::path(directory) / file.filename();
}

}  // namespace

void keep_tokenizer_file(const TokenizerConfig& tokenizer, const std::string& directory) {
  const std::unique_ptr<layers::Config> copy = tokenizer.clone();
  const auto* file = file_of(dynamic_cast<TokenizerConfig&>(*copy));
  if (!file) return;
  std::error_code error;
  const fs::path to = copy_in(directory, file->get());
  if (fs::exists(to, error)) return;
  fs::copy_file(file->get(), to, error);
  if (error)
    throw Error("'" + to.string() + "'", "the tokenizer's file must be copied here", error.message());
}

TrainerConfig stored_recipe(const Checkpoint& checkpoint, const layers::ClassTable& classes) {
  TrainerConfig config = parse_recipe(checkpoint.config, classes, checkpoint.path + "/config.txt");
  layers::Required<std::string>* file =
      config.input && config.input->tokenizer ? file_of(*config.input->tokenizer) : nullptr;
  std::error_code ignored;
  if (!file || fs::exists(file->get(), ignored)) return config;
  const std::string run = fs::absolute(checkpoint.path).lexically_normal().parent_path().string();
  if (const fs::path copy = copy_in(run, file->get()); fs::exists(copy, ignored)) *file = copy.string();
  return config;
}

}  // namespace meshloom::trainer
