#include "layers/block/unused_overrides.h"

#include <memory>
#include <string>
#include <vector>

#include "layers/block/heterogeneous_stack.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

void remove_unused_overrides(Config& root) {
  std::vector<std::string> paths;
  visit(root, [&](const std::string& path, const Config& node) {
    if (dynamic_cast<const HeterogeneousStack::Config*>(&node)) paths.push_back(path);
  });
  replace_at(root, paths, [](const Config& old, const std::string&) -> std::unique_ptr<Config> {
    auto stack = dynamic_cast<const HeterogeneousStack::Config&>(old);
    const auto same = [&](const HeterogeneousStack::Config& other) {
      for (std::int64_t i = 0; i < stack.num_layers; ++i)
        if (!diff(*stack.layer_at(i), *other.layer_at(i)).empty()) return false;
      return true;
    };
    for (std::size_t i = stack.overrides.size(); i-- > 0;) {
      HeterogeneousStack::Config without = stack;
      without.overrides.erase(without.overrides.begin() + static_cast<std::ptrdiff_t>(i));
      if (same(without)) stack = without;
    }
    if (!stack.overrides.empty()) return stack.clone();
    Stack::Config plain;
    plain.num_layers = stack.num_layers;
    plain.layer = stack.layer;
    return plain.clone();
  });
}

}  // namespace meshloom::layers
