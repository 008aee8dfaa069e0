#include "layers/config/select.h"

#include <algorithm>
#include <set>

#include "layers/config/field.h"
#include "layers/config/glob.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

using VisitSlot = std::function<void(const std::string& path, ChildSlot& slot, Config& parent)>;

// Calls fn for every child of the tree, before or after its own children.
void visit_slots(Config& node, const std::string& path, bool parents_first, const VisitSlot& fn) {
  for_each_field(node, [&](const Field& field) {
    const auto one = [&](ChildSlot& slot, const std::string& at) {
      if (!slot.get()) return;
      if (parents_first) fn(at, slot, node);
      visit_slots(*slot.get(), at, parents_first, fn);
      if (!parents_first) fn(at, slot, node);
    };
    const std::string here = join_path(path, field.name);
    if (const auto* slot = std::get_if<ChildSlot*>(&field.value)) {
      one(**slot, here);
    } else if (const auto* list = std::get_if<ChildList>(&field.value)) {
      for (std::size_t i = 0; i < list->slots->size(); ++i) one(*(*list->slots)[i], item_path(here, i));
    }
  });
}

// The condition "FIELD=VALUE": the node has the field, and setting the value would change nothing.
class Having {
 public:
  Having(const std::string& text, const ClassTable& classes) : classes_(classes) {
    if (text.empty()) return;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error("having", "must read FIELD=VALUE", "'" + text + "'");
    field_ = text.substr(0, equals);
    value_ = text.substr(equals + 1);
  }

  bool operator()(Config& node) const {
    if (field_.empty()) return true;
    if (!with_field(node, field_.substr(0, field_.find_first_of(".[")), [](const Field&) {})) return false;
    const std::unique_ptr<Config> copy = node.clone();
    try {
      return !set(*copy, field_, value_, classes_);
    } catch (const Error&) {
      return false;  // a field of that name, but of another kind
    }
  }

 private:
  const ClassTable& classes_;
  std::string field_, value_;
};

// For the message about a selection that selects nothing: the nodes that meet a part of the conditions.
std::string nearest(const Selection& selection, const std::set<std::string>& of_class,
                    const std::set<std::string>& classes_there, const std::vector<std::string>& in_place) {
  const auto some = [](const auto& list) {
    std::string text;
    int left = 4;
    for (const std::string& item : list) {
      if (left-- == 0) return text + ", ...";
      text += (text.empty() ? "" : ", ") + item;
    }
    return text;
  };
  if (!selection.of_class.empty() && of_class.empty()) {
    const std::vector<std::string> there(classes_there.begin(), classes_there.end());
    return "none of this class" + suggestion(selection.of_class, there);
  }
  if (in_place.empty())
    return std::string("none at such a path; ") +
           (selection.of_class.empty() ? "there are " : "of the class there are ") + some(of_class);
  return "none with that field so; at such paths are " + some(in_place);
}

}  // namespace

std::string Selection::to_string() const {
  std::string text = where;
  if (!except.empty()) text += " except " + except;
  if (!of_class.empty()) text += " of class " + of_class;
  if (!having.empty()) text += " having " + having;
  return text;
}

std::vector<std::string> select(const Config& root, const Selection& selection, const ClassTable& classes) {
  const Glob where(selection.where);
  const std::optional<Glob> except =
      selection.except.empty() ? std::nullopt : std::optional<Glob>(Glob(selection.except));
  const Having having(selection.having, classes);
  const std::string_view wanted = classes.current_name(selection.of_class);
  std::vector<std::string> paths, in_place;
  std::set<std::string> of_class, classes_there;
  visit_slots(const_cast<Config&>(root), "", true, [&](const std::string& path, ChildSlot& slot, Config&) {
    Config& node = *slot.get();
    classes_there.emplace(node.class_name());
    if (!wanted.empty() && node.class_name() != wanted && node.form_of() != wanted &&
        slot.base_name() != wanted)
      return;
    of_class.insert(path);
    if (!where.matches(path) || (except && except->matches(path))) return;
    in_place.push_back(path);
    if (having(node)) paths.push_back(path);
  });
  const std::string name = "selection " + selection.to_string();
  if (selection.matches && static_cast<std::int64_t>(paths.size()) != *selection.matches)
    throw Error(name, "must match " + std::to_string(*selection.matches) + " nodes",
                std::to_string(paths.size()));
  if (paths.empty() && !selection.matches)
    throw Error(name, "must match at least one node", nearest(selection, of_class, classes_there, in_place));
  return paths;
}

void replace_at(
    Config& root, const std::vector<std::string>& paths,
    const std::function<std::unique_ptr<Config>(const Config& old, const std::string& path)>& make) {
  const std::set<std::string> chosen(paths.begin(), paths.end());
  const auto edit = [&](Config& tree) {
    visit_slots(tree, "", false, [&](const std::string& path, ChildSlot& slot, Config&) {
      if (!chosen.count(path)) return;
      std::unique_ptr<Config> fresh = make(*slot.get(), path);
      const std::string name(fresh->class_name());
      if (!slot.reset(std::move(fresh)))
        throw Error(path, "must be a " + std::string(slot.base_name()), "'" + name + "'");
    });
  };
  const std::unique_ptr<Config> copy = root.clone();  // if an edit throws, the tree itself must be unchanged
  edit(*copy);
  edit(root);
}

std::vector<std::string> wrap(Config& root, const Selection& selection, const Config& wrapper,
                              const std::string& slot, const ClassTable& classes) {
  std::vector<std::string> paths = select(root, selection, classes);
  std::set<std::string> wrapped;
  visit_slots(root, "", true, [&](const std::string& path, ChildSlot&, Config& parent) {
    if (parent.class_name() == wrapper.class_name()) wrapped.insert(path);
  });
  std::erase_if(paths, [&](const std::string& path) { return wrapped.count(path) > 0; });
  replace_at(root, paths, [&](const Config& old, const std::string&) {
    std::unique_ptr<Config> fresh = wrapper.clone();
    const std::string name(fresh->class_name());
    bool found = false, taken = false;
    with_field(*fresh, slot, [&](const Field& field) {
      const auto* into = std::get_if<ChildSlot*>(&field.value);
      found = into != nullptr;
      taken = found && (*into)->reset(old.clone());
    });
    if (!found)
      throw Error("wrapping in " + name, "the class must have a child to put the node into",
                  "no child '" + slot + "'" + suggestion(slot, field_names(*fresh)));
    if (!taken)
      throw Error("wrapping in " + name, "'" + slot + "' must be able to hold the node's class",
                  std::string(old.class_name()));
    return fresh;
  });
  return paths;
}

}  // namespace meshloom::layers
