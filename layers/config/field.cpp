#include "layers/config/field.h"

#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

class Collector : public FieldVisitor {
 public:
  explicit Collector(const std::function<void(const Field&)>& fn) : fn_(fn) {}
  void field(const Field& field) override { fn_(field); }

 private:
  const std::function<void(const Field&)>& fn_;
};

}  // namespace

void for_each_field(Config& config, const std::function<void(const Field&)>& fn) {
  Collector collector(fn);
  config.fields(collector);
}

bool with_field(Config& config, std::string_view name, const std::function<void(const Field&)>& fn) {
  bool found = false;
  const auto look = [&](auto matches) {
    for_each_field(config, [&](const Field& field) {
      if (found || !matches(field)) return;
      found = true;
      fn(field);
    });
  };
  look([&](const Field& field) { return field.name == name; });
  if (!found && !name.empty()) look([&](const Field& field) { return field.about.former_name() == name; });
  return found;
}

std::vector<std::string> field_names(Config& config) {
  std::vector<std::string> names;
  for_each_field(config, [&](const Field& field) { names.emplace_back(field.name); });
  return names;
}

std::string no_such_field(Config& config, std::string_view name) {
  const std::vector<std::string> known = field_names(config);
  const std::string owner(config.class_name());
  return owner + " has no field '" + std::string(name) + "'" + suggestion(name, known) +
         (known.empty() ? " (it has none)" : " (it has " + hal::join(known) + ")");
}

std::string join_path(const std::string& parent, std::string_view name) {
  return parent.empty() ? std::string(name) : parent + "." + std::string(name);
}

std::string item_path(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

}  // namespace meshloom::layers
