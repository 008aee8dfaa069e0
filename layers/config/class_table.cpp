#include "layers/config/config.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

std::unique_ptr<Config> ClassTable::make(std::string_view name) const {
  const auto found = factories_.find(name);
  if (found == factories_.end())
    throw Error("config", "there is no class '" + std::string(name) + "'" + suggestion(name, names()));
  return found->second();
}

std::vector<std::string> ClassTable::names() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace meshloom::layers
