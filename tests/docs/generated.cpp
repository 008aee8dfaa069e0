#include "tests/docs/generated.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/docs/commands.h"
#include "tests/docs/reference.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using Json = nlohmann::json;

std::string said(const std::string& arguments) {
  const Outcome outcome = meshloom(arguments);
  if (outcome.code != 0) throw std::runtime_error("meshloom " + arguments + ": " + outcome.err);
  return outcome.out;
}

// In a cell of a table.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

// An interface may be called as a class is.
std::string interface_heading(const std::string& name) { return name + " (interface)"; }

std::string linked(const Json& names, const std::function<std::string(const std::string&)>& heading) {
  std::string text;
  for (const std::string name : names)
    text += (text.empty() ? "" : ", ") + ("[" + name + "](#" + slug(heading(name)) + ")");
  return text;
}

// The type, with a link where its last word is a class or an interface: "list of MeshRule".
std::string type_cell(const std::string& type, const std::map<std::string, std::string>& headings) {
  const std::size_t at = type.rfind(' ') == std::string::npos ? 0 : type.rfind(' ') + 1;
  const auto found = headings.find(type.substr(at));
  if (found == headings.end()) return cell(type);
  return type.substr(0, at) + "[" + found->first + "](#" + slug(found->second) + ")";
}

std::string field_row(const Json& field, const std::map<std::string, std::string>& headings) {
  std::string meaning = field["about"];
  if (field.contains("former_name"))
    meaning += " Its former name `" + field["former_name"].get<std::string>() + "` is still read.";
  return "| " + code(field["name"]) + " | " + type_cell(field["type"], headings) + " | " +
         code(field["default"]) + " | " + cell(field.value("range", "")) + " | " + cell(meaning) + " |\n";
}

std::string section(const Json& description, const std::map<std::string, std::string>& headings) {
  const std::string name = description["name"], about = description["about"];
  std::string text = "### " + name + "\n\n" + about;
  if (!description["interfaces"].empty())
    text += " It can stand where a " + linked(description["interfaces"], interface_heading) + " is taken.";
  text += "\n\n";
  if (description["fields"].empty()) return text + "It has no fields.\n\n";
  text += "| field | type | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const Json& field : description["fields"]) text += field_row(field, headings);
  return text + "\n";
}

const char* const kNote =
    "<!-- Written by scripts/generate-docs from what the program says; do not edit. -->\n";

}  // namespace

std::string configuration_page() {
  const Json all = Json::parse(said("classes --json"));
  std::string text = std::string("# Configuration\n") + kNote +
                     "\n"
                     "A recipe is a tree of configs. This page lists every class that may stand in it: "
                     "`meshloom classes` as a "
                     "page. The type of a\n"
                     "field is a number, a text, a list, or an interface; where it is an interface, any "
                     "class that is listed "
                     "under that interface\n"
                     "can be its value. A value out of its range is refused where it is set. `required` "
                     "marks a field without "
                     "a default, `none` an\n"
                     "optional one that is empty. [The tutorial](tutorial.md) shows how recipes are edited, "
                     "[modifiers.md](modifiers.md) lists the\n"
                     "ways.\n\n"
                     "The root of every recipe is [Trainer](#trainer).\n\n## Interfaces\n\n";
  const auto same = [](const std::string& name) { return name; };
  for (const Json& interface : all["interfaces"])
    text += "### " + interface_heading(interface["name"]) + "\n\n" + interface["about"].get<std::string>() +
            "\n\nClasses: " + linked(interface["classes"], same) + ".\n\n";
  std::map<std::string, std::string> headings;
  for (const Json& description : all["classes"]) headings[description["name"]] = description["name"];
  for (const Json& interface : all["interfaces"])
    headings[interface["name"]] = interface_heading(interface["name"]);
  text += "## Classes\n\n";
  for (const Json& description : all["classes"]) text += section(description, headings);
  text.pop_back();
  return text;
}

std::string cli_page() {
  std::string text = std::string("# Command line\n") + kNote +
                     "\nWhat `--help` of every command prints. `--json`, where a command has it, gives what "
                     "a program would read. "
                     "Exit codes\n"
                     "are 0 for done, 1 for an error, 2 for a wrong command line or a plan that does not "
                     "fit, 3 and 4 for results of "
                     "`bench`,\n"
                     "130 for a run that a signal stopped.\n\n";
  const auto add = [&](const std::string& command) {
    const std::string name = "meshloom" + (command.empty() ? "" : " " + command);
    text += "## " + name + "\n\n```text\n" + said(command.empty() ? "--help" : command + " --help");
    while (text.ends_with("\n\n")) text.pop_back();
    text += "```\n\n";
  };
  add("");
  for (const std::string& command : kCommands) add(command);
  text.pop_back();
  return text;
}

}  // namespace meshloom::tests
