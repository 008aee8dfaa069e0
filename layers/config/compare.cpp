#include <map>

#include "layers/config/field.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

void flatten_into(const Config& node, const std::string& path, Lines& lines) {
  for_each_field(const_cast<Config&>(node), [&](const Field& field) {
    const std::string here = join_path(path, field.name);
    const auto child = [&](const std::string& at, const ChildSlot& slot) {
      lines.emplace_back(at, slot.get() ? std::string(slot.get()->class_name()) : "none");
      if (slot.get()) flatten_into(*slot.get(), at, lines);
    };
    if (const auto* slot = std::get_if<ChildSlot*>(&field.value)) {
      child(here, **slot);
    } else if (const auto* list = std::get_if<ChildList>(&field.value)) {
      if (list->slots->empty()) lines.emplace_back(here, "[]");
      for (std::size_t i = 0; i < list->slots->size(); ++i) child(item_path(here, i), *(*list->slots)[i]);
    } else {
      lines.emplace_back(here, leaf_text(field.value));
    }
  });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> flatten(const Config& config) {
  Lines lines;
  flatten_into(config, "", lines);
  return lines;
}

std::string diff(const Config& before, const Config& after) {
  const Lines a = flatten(before), b = flatten(after);
  const std::map<std::string, std::string> in_a(a.begin(), a.end()), in_b(b.begin(), b.end());
  std::string text;
  const auto line = [&](char sign, const std::pair<std::string, std::string>& leaf) {
    text += sign + leaf.first + ": " + leaf.second + "\n";
  };
  if (before.class_name() != after.class_name())
    text += "-(root): " + std::string(before.class_name()) + "\n+(root): " + std::string(after.class_name()) +
            "\n";
  // Both lists are in field order. A path that only one side has is printed at its place on that side.
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && in_b.count(a[i].first) == 0) {
      line('-', a[i++]);
    } else if (j < b.size() && in_a.count(b[j].first) == 0) {
      line('+', b[j++]);
    } else {
      const auto& [path, value] = a[i++];  // on both sides, though perhaps not at b[j]: the order may differ
      ++j;
      const std::string& now = in_b.at(path);
      if (now == value) continue;
      line('-', {path, value});
      line('+', {path, now});
    }
  }
  return text;
}

void check_complete(const Config& config) {
  std::string missing;
  visit(config, [&](const std::string& path, const Config& node) {
    for_each_field(const_cast<Config&>(node), [&](const Field& field) {
      if (leaf_text(field.value) == "required")
        missing += (missing.empty() ? "" : ", ") + join_path(path, field.name) + " (" +
                   std::string(node.class_name()) + ")";
    });
  });
  if (!missing.empty()) throw Error("config", "every required field must be set", "unset: " + missing);
}

}  // namespace meshloom::layers
