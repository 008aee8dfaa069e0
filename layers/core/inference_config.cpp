#include "layers/core/inference_config.h"

#include <string>
#include <vector>

#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

std::unique_ptr<Config> inference_config(const Config& model) {
  std::unique_ptr<Config> plain = model.clone();
  std::vector<std::string> paths;
  visit(model, [&](const std::string& path, const Config& node) {
    if (dynamic_cast<const TrainingOnly*>(&node)) paths.push_back(path);
  });
  replace_at(*plain, paths, [](const Config& old, const std::string&) {
    return dynamic_cast<const TrainingOnly&>(old).inference_config();
  });
  return plain;
}

}  // namespace meshloom::layers
