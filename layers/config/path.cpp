#include <charconv>

#include "layers/config/field.h"
#include "layers/config/parser.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

struct Step {
  std::string name;
  std::optional<std::size_t> index;
};

[[noreturn]] void bad_path(std::string_view path, const std::string& rule) {
  throw Error("path '" + std::string(path) + "'", rule);
}

std::vector<Step> steps_of(std::string_view path) {
  std::vector<Step> steps;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    std::string_view part = path.substr(begin, end - begin);
    Step step;
    if (const std::size_t open = part.find('['); open != std::string_view::npos) {
      std::size_t index = 0;
      const std::string_view digits = part.substr(open + 1);
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
      if (error != std::errc() || stop + 1 != digits.data() + digits.size() || *stop != ']')
        bad_path(path, "a list item is written name[number]");
      step.index = index;
      part = part.substr(0, open);
    }
    if (part.empty()) bad_path(path, "names are separated by single dots");
    step.name = part;
    steps.push_back(std::move(step));
    if (end == path.size()) return steps;
    begin = end + 1;
  }
}

// Calls fn(field, owner) for the field at the path. An item of a list is passed as if it were a child field.
void at_path(Config& config, std::string_view path, const std::vector<Step>& steps, std::size_t from,
             const std::function<void(const Field&, const Config&)>& fn) {
  const Step& step = steps[from];
  const bool last = from + 1 == steps.size();
  const auto child = [&](ChildSlot* slot) {
    if (last) return fn({step.name, slot}, config);
    if (!slot->get()) bad_path(path, "'" + step.name + "' is none and has no fields");
    at_path(*slot->get(), path, steps, from + 1, fn);
  };
  const bool known = with_field(config, step.name, [&](const Field& field) {
    if (const auto* list = std::get_if<ChildList>(&field.value); list && step.index) {
      if (*step.index >= list->slots->size())
        bad_path(path, "'" + step.name + "' has " + std::to_string(list->slots->size()) + " items");
      return child((*list->slots)[*step.index].get());
    }
    if (step.index) bad_path(path, "'" + step.name + "' is not a list of configs");
    if (last) return fn(field, config);
    if (const auto* slot = std::get_if<ChildSlot*>(&field.value)) return child(*slot);
    if (std::holds_alternative<ChildList>(field.value))
      bad_path(path, "'" + step.name + "' is a list; write " + step.name + "[number]");
    bad_path(path, "'" + step.name + "' is a value and has no fields");
  });
  if (!known) bad_path(path, no_such_field(config, step.name));
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Sets a string field to the whole text, so that a command line needs no quotes inside its quotes. False if it is none.
bool set_bare_string(const Field& field, std::string_view text) {
  if (text.empty() || text.front() == '"') return false;
  const auto* value = std::get_if<std::string*>(&field.value);
  const auto* optional = std::get_if<OptionalField<std::string>>(&field.value);
  if (!value && (!optional || text == (optional->required ? "required" : "none"))) return false;
  text = field.about.current_value(text);
  if (!field.about.range().has(text)) return false;  // the parser will report the error
  if (value)
    **value = text;
  else
    *optional->value = text;
  return true;
}

void visit_below(Config& node, const std::string& path,
                 const std::function<void(const std::string&, Config&)>& fn) {
  fn(path, node);
  for_each_field(node, [&](const Field& field) {
    const std::string here = join_path(path, field.name);
    if (const auto* slot = std::get_if<ChildSlot*>(&field.value)) {
      if ((*slot)->get()) visit_below(*(*slot)->get(), here, fn);
    } else if (const auto* list = std::get_if<ChildList>(&field.value)) {
      for (std::size_t i = 0; i < list->slots->size(); ++i)
        if (Config* item = (*list->slots)[i]->get()) visit_below(*item, item_path(here, i), fn);
    }
  });
}

}  // namespace

std::string get(const Config& config, std::string_view path) {
  std::string text;
  at_path(const_cast<Config&>(config), path, steps_of(path), 0,
          [&](const Field& field, const Config&) { text = field_text(field.value, 0); });
  return text;
}

bool set(Config& config, std::string_view path, std::string_view text, const ClassTable& classes) {
  bool changed = false;
  at_path(config, path, steps_of(path), 0, [&](const Field& field, const Config& owner) {
    const std::string before = field_text(field.value, 0);
    if (!set_bare_string(field, trim(text))) {
      const auto read = [&](const Field& into) {
        Parser parser(text, classes, std::string(path), false);
        parser.value(into, owner.class_name());
        parser.end();
      };
      // It is read into a copy first: if something follows the value, nothing must change.
      const std::unique_ptr<Config> copy = config.clone();
      at_path(*copy, path, steps_of(path), 0, [&](const Field& scratch, const Config&) { read(scratch); });
      read(field);
    }
    changed = get(config, path) != before;
  });
  return changed;
}

void visit(Config& root, const std::function<void(const std::string& path, Config& node)>& fn) {
  visit_below(root, "", fn);
}

void visit(const Config& root, const std::function<void(const std::string& path, const Config& node)>& fn) {
  visit_below(const_cast<Config&>(root), "", [&](const std::string& path, Config& node) { fn(path, node); });
}

}  // namespace meshloom::layers
