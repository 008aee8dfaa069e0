#include "layers/adapters/merge.h"

#include <algorithm>

#include "layers/adapters/adapter.h"
#include "layers/block/unused_overrides.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

MergedModel merge_adapters(const Config& model) {
  MergedModel merged{model.clone(), {}};
  std::vector<std::string> paths;
  visit(model, [&](const std::string& path, const Config& node) {
    if (dynamic_cast<const MergeableConfig*>(&node)) paths.push_back(path);
  });
  if (paths.empty()) return merged;
  const auto* root = dynamic_cast<const Module::Config*>(&model);
  if (!root)
    throw Error("model", "the root of a model must be a module", "'" + std::string(model.class_name()) + "'");
  root->build({})->visit([&](const Module& module) {
    if (const auto* mergeable = dynamic_cast<const Mergeable*>(&module))
      merged.merges.push_back(mergeable->merge());
    merged.adapters += dynamic_cast<const Adapter*>(&module) != nullptr;
  });
  std::reverse(merged.merges.begin(), merged.merges.end());  // an adapted layer is merged before its adapter
  replace_at(*merged.model, paths, [](const Config& old, const std::string&) {
    return dynamic_cast<const MergeableConfig&>(old).merged_config();
  });
  remove_unused_overrides(*merged.model);  // layers that differed in how they store weights
  return merged;
}

}  // namespace meshloom::layers
