#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/config/describe.h"
#include "trainer/cli/command.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using layers::ClassDescription;
using layers::FieldDescription;
using layers::InterfaceDescription;

OrderedJson to_json(const ClassDescription& description, const std::vector<std::string>& interfaces) {
  OrderedJson fields = OrderedJson::array();
  for (const FieldDescription& field : description.fields) {
    OrderedJson row{
        {"name", field.name}, {"type", field.type}, {"default", field.value}, {"about", field.about}};
    if (!field.range.empty()) row["range"] = field.range;
    if (!field.former_name.empty()) row["former_name"] = field.former_name;
    fields.push_back(std::move(row));
  }
  return {{"name", description.name},
          {"about", description.about},
          {"interfaces", interfaces},
          {"fields", fields}};
}

OrderedJson to_json(const InterfaceDescription& interface) {
  return {{"name", interface.name}, {"about", interface.about}, {"classes", interface.classes}};
}

void print_class(const ClassDescription& description, const std::vector<std::string>& interfaces) {
  fmt::print("{}{}\n  {}\n", description.name, interfaces.empty() ? "" : " (" + hal::join(interfaces) + ")",
             description.about);
  if (description.fields.empty()) fmt::print("  It has no fields.\n");
  for (const FieldDescription& field : description.fields) {
    fmt::print("  {} = {}    {}{}{}\n", field.name, field.value, field.type, field.range.empty() ? "" : ", ",
               field.range);
    fmt::print("      {}{}\n", field.about,
               field.former_name.empty() ? "" : fmt::format(" Formerly called {}.", field.former_name));
  }
}

// All interfaces, and the classes without one.
void print_names(const layers::ClassTable& classes, const std::vector<InterfaceDescription>& interfaces) {
  std::vector<std::string> others = classes.names();
  for (const InterfaceDescription& interface : interfaces) {
    fmt::print("{:<18} {}\n{:<18}   {}\n", interface.name, interface.about, "", hal::join(interface.classes));
    std::erase_if(others, [&](const std::string& name) {
      return std::find(interface.classes.begin(), interface.classes.end(), name) != interface.classes.end();
    });
  }
  for (const std::string& name : others) fmt::print("{:<18} {}\n", name, classes.about(name));
}

int list(const layers::ClassTable& classes, const std::string& name, bool json) {
  const std::vector<InterfaceDescription> interfaces = layers::describe_interfaces(classes);
  std::vector<std::string> chosen = classes.names();
  std::vector<InterfaceDescription> shown = interfaces;
  if (!name.empty()) {
    std::vector<std::string> known = chosen;
    for (const InterfaceDescription& interface : interfaces) known.push_back(interface.name);
    std::erase_if(shown, [&](const InterfaceDescription& interface) { return interface.name != name; });
    if (shown.empty() && !classes.has(name))
      throw Error("classes", "must be an interface or a class" + hal::suggestion(name, known),
                  "'" + name + "'");
    chosen = shown.empty() ? std::vector<std::string>{std::string(classes.current_name(name))}
                           : shown.front().classes;
  }
  if (json) {
    OrderedJson rows = OrderedJson::array(), described = OrderedJson::array();
    for (const InterfaceDescription& interface : shown) rows.push_back(to_json(interface));
    for (const std::string& one : chosen)
      described.push_back(
          to_json(layers::describe_class(classes, one), layers::interfaces_of(interfaces, one)));
    fmt::print("{}\n", OrderedJson{{"interfaces", rows}, {"classes", described}}.dump(2));
    return 0;
  }
  if (name.empty()) {
    print_names(classes, interfaces);
    return 0;
  }
  for (const InterfaceDescription& interface : shown)
    fmt::print("{}\n  {}\n\n", interface.name, interface.about);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (i > 0) fmt::print("\n");
    print_class(layers::describe_class(classes, chosen[i]), layers::interfaces_of(interfaces, chosen[i]));
  }
  return 0;
}

}  // namespace

void add_classes(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand(
      "classes", "List the interfaces and classes that recipes consist of, and their fields");
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("name", *name, "An interface, to list the classes that implement it, or a class");
  command->add_flag("--json", *json, "Print a JSON object with every field of the classes");
  command->footer(
      "A field that takes an interface accepts any of its classes: --replace RMSNorm=LayerNorm{}, --set "
      "PATH=CLASS{...}.\n"
      "Patterns in modifiers, and in rules for kernels and remat, are names separated by '.' or '/': * is "
      "any "
      "part of one\n"
      "name, ? one character, {a,b} either text and ** any names, such as \"**.attention.{q,v}_proj\". Until "
      "version 1.0\n"
      "rules also accept regular expressions: a pattern with .*, .? or any of \\^$()|[]+ is read as one, "
      "with "
      "a note that\n"
      "this is deprecated.\n"
      "Examples:\n  meshloom classes\n  meshloom classes Mask\n  meshloom classes AdamW");
  command->callback([=, &action] { action = [=] { return list(registries.classes, *name, *json); }; });
}

}  // namespace meshloom::trainer
