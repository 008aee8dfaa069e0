#include "layers/config/config.h"
#include "layers/config/tree.h"

namespace meshloom::layers {

const ClassTable::Entry& ClassTable::entry(std::string_view name) const {
  const auto found = entries_.find(current_name(name));
  if (found == entries_.end())
    throw Error("config", "there is no class '" + std::string(name) + "'" + suggestion(name, names()));
  return found->second;
}

void ClassTable::add_former_name(std::string_view old, std::string_view current) {
  if (entries_.find(current) == entries_.end())
    throw Error("config", "a former name must be that of a class in the table",
                "'" + std::string(old) + "' for '" + std::string(current) + "'");
  if (has(old))
    throw Error("config", "a former name must not be a name of another class", "'" + std::string(old) + "'");
  current_names_.emplace(old, current);
}

std::string_view ClassTable::current_name(std::string_view name) const {
  const auto found = current_names_.find(name);
  return found == current_names_.end() ? name : std::string_view(found->second);
}

std::unique_ptr<Config> ClassTable::make(std::string_view name) const { return entry(name).make(); }

std::string_view ClassTable::about(std::string_view name) const { return entry(name).about; }

std::vector<std::string> ClassTable::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace meshloom::layers
