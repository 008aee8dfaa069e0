#include <set>

#include "layers/config/field.h"
#include "layers/config/parser.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

// Copies one field's value into a field of the same name; false when it is of another kind.
bool copy_value(const FieldValue& from, const FieldValue& to, const ClassTable& classes) {
  if (const auto* source = std::get_if<ChildSlot*>(&from)) {
    const auto* target = std::get_if<ChildSlot*>(&to);
    return target && (*target)->reset((*source)->get() ? (*source)->get()->clone() : nullptr);
  }
  if (const auto* source = std::get_if<ChildList>(&from)) {
    const auto* target = std::get_if<ChildList>(&to);
    if (!target) return false;
    (*target->clear)();
    for (const auto& slot : *source->slots)
      if (!(*target->append)().reset(slot->get() ? slot->get()->clone() : nullptr)) return false;
    return true;
  }
  if (std::holds_alternative<ChildSlot*>(to) || std::holds_alternative<ChildList>(to)) return false;
  try {  // leaves go through their text, which converts between T, optional and required
    const std::string text = leaf_text(from);
    Parser parser(text, classes, "replace", false);
    parser.value({"", to}, "");
    parser.end();
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Replacer {
  std::string_view from, text;
  const ClassTable& classes;
  std::vector<std::string>* dropped;
  std::vector<std::string> paths;

  std::unique_ptr<Config> replacement_of(Config& old, const std::string& path) {
    Parser parser(text, classes, "replace " + std::string(from), false);
    std::set<std::string> named;
    std::unique_ptr<Config> fresh = parser.config(&named);
    parser.end();
    const std::unique_ptr<Config> defaults = classes.has(from) ? classes.make(from) : nullptr;
    for_each_field(old, [&](const Field& field) {
      if (named.count(std::string(field.name))) return;
      bool kept = false;
      with_field(*fresh, field.name,
                 [&](const Field& target) { kept = copy_value(field.value, target.value, classes); });
      if (kept || !dropped) return;
      bool is_default = false;
      if (defaults)
        with_field(*defaults, field.name, [&](const Field& was) {
          is_default = field_text(was.value, 0) == field_text(field.value, 0);
        });
      if (!is_default) dropped->push_back(join_path(path, field.name));
    });
    return fresh;
  }

  void slot(ChildSlot& slot, const std::string& path) {
    if (!slot.get()) return;
    below(*slot.get(),
          path);  // children first: a kept child has been replaced already, a fresh one is left alone
    if (slot.get()->class_name() != from) return;
    std::unique_ptr<Config> fresh = replacement_of(*slot.get(), path);
    const std::string name(fresh->class_name());
    if (!slot.reset(std::move(fresh)))
      throw Error("replace " + std::string(from), path + " takes a " + std::string(slot.base_name()),
                  "'" + name + "'");
    paths.push_back(path);
  }

  void below(Config& node, const std::string& path) {
    for_each_field(node, [&](const Field& field) {
      const std::string here = join_path(path, field.name);
      if (const auto* child = std::get_if<ChildSlot*>(&field.value)) {
        slot(**child, here);
      } else if (const auto* list = std::get_if<ChildList>(&field.value)) {
        for (std::size_t i = 0; i < list->slots->size(); ++i) slot(*(*list->slots)[i], item_path(here, i));
      }
    });
  }
};

}  // namespace

std::vector<std::string> replace(Config& root, std::string_view from, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped) {
  std::vector<std::string> present;
  bool found = false;
  visit(static_cast<const Config&>(root), [&](const std::string& path, const Config& node) {
    if (path.empty()) return;
    present.emplace_back(node.class_name());
    found |= node.class_name() == from;
  });
  if (!found)
    throw Error("replace " + std::string(from), root.class_name() == from
                                                    ? "the root itself cannot be replaced"
                                                    : "no node is of this class" + suggestion(from, present));
  Replacer replacer{from, replacement, classes, dropped, {}};
  // A replacement that fits one slot and not the next must leave the tree as it was: try on a copy first.
  const std::unique_ptr<Config> copy = root.clone();
  Replacer trial{from, replacement, classes, nullptr, {}};
  trial.below(*copy, "");
  replacer.below(root, "");
  return replacer.paths;
}

}  // namespace meshloom::layers
