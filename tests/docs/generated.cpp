#include "tests/docs/generated.h"

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

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

const std::string kFolder = "docs/configuration/";

// The subcommands that the help of "meshloom COMMAND" lists.
std::vector<std::string> subcommands(const std::string& command) {
  const std::string help = said(command + " --help");
  const std::size_t begin = help.find("\nSubcommands:\n");
  if (begin == std::string::npos) return {};
  const std::string list = help.substr(begin, help.find("\n\n", begin + 1) - begin);
  const std::regex name(R"(\n {2}([a-z_]+) )");
  std::vector<std::string> names;
  for (std::sregex_iterator it(list.begin(), list.end(), name), end; it != end; ++it)
    names.push_back((*it)[1]);
  return names;
}

// Where the page of each class and interface is, below docs/configuration.
std::map<std::string, std::string> places(const Json& all) {
  std::map<std::string, std::string> places;
  for (const Json& description : all["classes"]) {
    const std::string name = description["name"];
    const Json& interfaces = description["interfaces"];
    places[name] = (interfaces.empty() ? "" : interfaces[0].get<std::string>() + "/") + name + ".md";
  }
  // An interface may be called as a class is.
  for (const Json& interface : all["interfaces"])
    places.emplace(interface["name"], interface["name"].get<std::string>() + "/README.md");
  return places;
}

// The type, with a link where its last word is a class or an interface: "list of MeshRule". `up` leads from the page to
// docs/configuration.
std::string type_cell(const std::string& type, const std::map<std::string, std::string>& places,
                      const std::string& up) {
  const std::size_t at = type.rfind(' ') == std::string::npos ? 0 : type.rfind(' ') + 1;
  const auto found = places.find(type.substr(at));
  if (found == places.end()) return cell(type);
  return type.substr(0, at) + "[" + found->first + "](" + up + found->second + ")";
}

std::string field_row(const Json& field, const std::map<std::string, std::string>& places,
                      const std::string& up) {
  std::string meaning = field["about"];
  if (field.contains("former_name"))
    meaning += " Its former name `" + field["former_name"].get<std::string>() + "` is still read.";
  return "| " + code(field["name"]) + " | " + type_cell(field["type"], places, up) + " | " +
         code(field["default"]) + " | " + cell(field.value("range", "")) + " | " + cell(meaning) + " |\n";
}

const char* const kNote =
    "<!-- Written by scripts/generate-docs from what the program says; do not edit. -->\n\n";

std::string class_page(const Json& description, const std::map<std::string, std::string>& places,
                       const std::string& up) {
  std::string text = "# " + description["name"].get<std::string>() + "\n" + kNote;
  text += description["about"].get<std::string>();
  std::string interfaces;
  for (const std::string name : description["interfaces"])
    interfaces += (interfaces.empty() ? "" : " or ") + ("[" + name + "](" + up + name + "/README.md)");
  if (!interfaces.empty()) text += " It can stand where a " + interfaces + " is taken.";
  text += "\n\n";
  if (description["fields"].empty()) return text + "It has no fields.\n";
  text += "| field | type | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const Json& field : description["fields"]) text += field_row(field, places, up);
  return text;
}

}  // namespace

std::vector<std::string> commands() {
  std::vector<std::string> all;
  for (const std::string& command : subcommands("")) {
    all.push_back(command);
    for (const std::string& inner : subcommands(command)) all.push_back(command + " " + inner);
  }
  return all;
}

std::map<std::string, std::string> configuration_pages() {
  const Json all = Json::parse(said("classes --json"));
  const std::map<std::string, std::string> at = places(all);
  std::map<std::string, std::string> pages;
  for (const Json& interface : all["interfaces"]) {
    const std::string name = interface["name"];
    pages[kFolder + name + "/README.md"] =
        "# " + name + " (interface)\n" + kNote + interface["about"].get<std::string>() +
        "\n\nThe other pages of this folder are the classes that can stand where a " + name +
        " is taken;\n`meshloom classes " + name + "` lists them.\n";
  }
  for (const Json& description : all["classes"]) {
    const std::string file = description["name"].get<std::string>() + ".md";
    if (description["interfaces"].empty()) pages[kFolder + file] = class_page(description, at, "");
    for (const std::string interface : description["interfaces"])
      pages[kFolder + interface + "/" + file] = class_page(description, at, "../");
  }
  return pages;
}

std::map<std::string, std::string> command_pages() {
  std::map<std::string, std::string> pages;
  for (const std::string& command : commands()) {
    std::string help = said(command + " --help"), file = command;
    while (help.ends_with("\n\n")) help.pop_back();
    for (char& c : file)
      if (c == ' ') c = '-';
    pages["docs/cli/" + file + ".md"] = "# meshloom " + command + "\n" + kNote + "```text\n" + help + "```\n";
  }
  return pages;
}

}  // namespace meshloom::tests
