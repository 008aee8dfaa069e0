#include <algorithm>
#include <set>

#include "layers/config/field.h"
#include "layers/config/parser.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

// Copies the value of a field into one of the same name and meaning. Returns false if the types do not fit.
bool copy_value(const FieldValue& from, const Field& into, const ClassTable& classes) {
  const FieldValue& to = into.value;
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
  try {  // a leaf is copied by its text, which converts between T, optional and required fields
    const std::string text = leaf_text(from);
    Parser parser(text, classes, "replace", false);
    parser.value(into, "");
    parser.end();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The new node: what `text` says, and the values of `old` for fields that the text does not set.
std::unique_ptr<Config> replacement_of(const Config& old, const std::string& path, std::string_view text,
                                       const ClassTable& classes, std::vector<std::string>* dropped) {
  const std::string from(old.class_name());
  Parser parser(text, classes, "replace " + from, false);
  std::set<std::string> named;
  std::unique_ptr<Config> fresh = parser.config(&named);
  parser.end();
  const std::unique_ptr<Config> defaults = classes.has(from) ? classes.make(from) : nullptr;
  for_each_field(const_cast<Config&>(old), [&](const Field& field) {
    if (named.count(std::string(field.name))) return;
    bool kept = false, means_another = false;
    with_field(*fresh, field.name, [&](const Field& target) {
      if (target.name != field.name) return;  // it is another field, which had this name formerly
      means_another = target.about.meaning() != field.about.meaning();
      kept = !means_another && copy_value(field.value, target, classes);
    });
    if (kept || !dropped) return;
    bool is_default = false;
    if (defaults)
      with_field(*defaults, field.name, [&](const Field& was) {
        is_default = field_text(was.value, 0) == field_text(field.value, 0);
      });
    const std::string at =
        join_path(path, field.name) + (means_another ? " (which means something else there)" : "");
    if (!is_default && std::find(dropped->begin(), dropped->end(), at) == dropped->end())
      dropped->push_back(at);
  });
  return fresh;
}

}  // namespace

std::vector<std::string> replace(Config& root, const Selection& selection, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped) {
  const std::vector<std::string> paths = select(root, selection, classes);
  replace_at(root, paths, [&](const Config& old, const std::string& path) {
    return replacement_of(old, path, replacement, classes, dropped);
  });
  return paths;
}

std::vector<std::string> replace(Config& root, std::string_view from, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped) {
  if (root.class_name() == classes.current_name(from))
    throw Error("replace " + std::string(from), "the root itself cannot be replaced");
  return replace(root, Selection{.of_class = std::string(from)}, replacement, classes, dropped);
}

}  // namespace meshloom::layers
