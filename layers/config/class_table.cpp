#include "layers/config/config.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

const ClassTable::Entry& ClassTable::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw Error("config", "there is no class '" + std::string(name) + "'" + suggestion(name, names()));
  return found->second;
}

std::unique_ptr<Config> ClassTable::make(std::string_view name) const { return entry(name).make(); }

std::string_view ClassTable::about(std::string_view name) const { return entry(name).about; }

std::vector<std::string> ClassTable::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace meshloom::layers
