#include "layers/adapters/merge.h"

#include <algorithm>

#include "layers/adapters/adapter.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

Merged merge_adapters(const Config& model) {
  Merged merged{model.clone(), {}};
  std::vector<std::string> paths;
  visit(model, [&](const std::string& path, const Config& node) {
    if (dynamic_cast<const FoldableConfig*>(&node)) paths.push_back(path);
  });
  if (paths.empty()) return merged;
  const auto* root = dynamic_cast<const Module::Config*>(&model);
  if (!root)
    throw Error("model", "the root of a model is a module", "'" + std::string(model.class_name()) + "'");
  root->build({})->visit([&](const Module& module) {
    if (const auto* foldable = dynamic_cast<const Foldable*>(&module))
      merged.folds.push_back(foldable->fold());
    merged.adapters += dynamic_cast<const Adapter*>(&module) != nullptr;
  });
  std::reverse(merged.folds.begin(), merged.folds.end());  // what is adapted before what adapts it
  put_at(*merged.model, paths, [](const Config& old, const std::string&) {
    return dynamic_cast<const FoldableConfig&>(old).plain();
  });
  return merged;
}

}  // namespace meshloom::layers
