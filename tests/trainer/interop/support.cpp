#include "tests/trainer/interop/support.h"

#include <algorithm>
#include <filesystem>

#include "tests/trainer/run/binary.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {

const std::string kModels = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/models";

std::string model_directory(const std::string& name) { return kModels + "/" + name; }

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

const kernels::Catalog& catalog() {
  static const kernels::Catalog* const all = [] {
    auto* made = new kernels::Catalog;
    kernels::add_contracts(*made);
    return made;
  }();
  return *all;
}

const layers::ClassTable& classes() {
  static const layers::ClassTable all = trainer::recipe_classes();
  return all;
}

trainer::Imported import_quietly(const std::string& from, const std::string& out,
                                 std::vector<std::string>* notes, const trainer::ImportOptions& options) {
  return trainer::import_model(from, out, options, catalog(), classes(), [&](const std::string& note) {
    if (notes) notes->push_back(note);
  });
}

trainer::TrainerConfig recipe_of(const std::string& checkpoint) {
  return trainer::parse_recipe(read_text(checkpoint + "/config.txt"), classes(), checkpoint);
}

}  // namespace meshloom::tests
