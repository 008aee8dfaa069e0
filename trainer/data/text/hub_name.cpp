#include "trainer/data/text/hub_name.h"

#include <filesystem>

#include "hal/error.h"
#include "trainer/io/shell_word.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string last_part(const std::string& name) { return name.substr(name.find('/') + 1); }
std::string absent(const std::string& name) { return "'" + name + "', which does not exist"; }

std::string download(const std::string& name) {
  return "`hf download " + name + " --local-dir " + last_part(name) + "`";
}

}  // namespace

bool reads_as_hub_name(const std::string& path) {
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == path.size() || path[0] == '.' ||
      path[slash + 1] == '.')
    return false;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '-' && c != '_' && c != '.' && i != slash) return false;
  }
  return !exists(path) && !exists(path.substr(0, slash));
}

void refuse_hub_checkpoint(const std::string& path, const std::string& option) {
  if (reads_as_hub_name(path))
    throw Error(option,
                "must be the directory of a run or of an imported model; for the model of this name on "
                "Hugging Face: " +
                    download(path) + ", then `meshloom import " + last_part(path) +
                    " --out imported`, then " + option + " imported",
                absent(path));
  std::error_code ignored;
  if (!exists(path + "/config.json") || exists(path + "/manifest.json")) return;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.path().filename().string().starts_with("step-")) return;
  throw Error(option,
              "must be the directory of a run or of an imported model; `meshloom import " + shell_word(path) +
                  " --out imported` makes one, then " + option + " imported",
              "a Hugging Face model's directory");
}

void refuse_hub_model(const std::string& path, const std::string& option) {
  if (reads_as_hub_name(path))
    throw Error(option,
                "must be a directory; " + download(path) +
                    " downloads the model of this name from Hugging Face into '" + last_part(path) + "'",
                absent(path));
}

void refuse_hub_data(const std::string& path) {
  if (reads_as_hub_name(path))
    throw Error(
        "data '" + path + "'",
        "must be a file, a folder or a pattern; `python3 -c \"import datasets; datasets.load_dataset('" +
            path + "', split='train').to_json('" + last_part(path) +
            ".jsonl')\"` writes the data set of this name on Hugging Face as .jsonl",
        "no such file");
}

}  // namespace meshloom::trainer
