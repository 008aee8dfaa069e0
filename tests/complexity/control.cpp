#include "tests/complexity/control.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace meshloom::tests {

std::string control_file(int host) { return fmt::format("control_{:02}.model", host); }

void write_control_host(const std::string& directory, int host) {
  std::ofstream(directory + "/" + control_file(host)) << fmt::format(
      "class Attention{0} : Attention\n  heads = {1}\n  position = 1\n"
      "class Model{0} : Model\n  width = {2}\n  attention = Attention{0}\n",
      host, 2 + host % 3, 8 + host);
}

// A subclass of the attention with the new position, and one of the model that takes it.
void integrate_control(const std::string& directory, int host, int variant) {
  std::ofstream(directory + "/" + control_file(host), std::ios::app) << fmt::format(
      "class Attention{0}V{1} : Attention{0}\n  position = {2}\n"
      "class Model{0}V{1} : Model{0}\n  attention = Attention{0}V{1}\n",
      host, variant, 10 + variant);
}

double run_control(const std::string& directory, int host, int variant) {
  std::map<std::string, std::map<std::string, std::string>> classes;
  std::map<std::string, std::string> bases;
  std::ifstream file(directory + "/" + control_file(host));
  std::string current;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second, third, fourth;
    words >> first >> second >> third >> fourth;
    if (first == "class") {
      current = second;
      classes[current] = {};
      bases[current] = fourth;
    } else {
      classes[current][first] = third;
    }
  }
  const auto field = [&](std::string name, const std::string& key) {
    for (; classes.count(name); name = bases.at(name))
      if (const auto found = classes.at(name).find(key); found != classes.at(name).end())
        return found->second;
    throw std::runtime_error("no class '" + name + "' with " + key);
  };
  const std::string model = fmt::format("Model{}{}", host, variant < 0 ? "" : fmt::format("V{}", variant));
  if (!classes.count(model)) throw std::runtime_error("no class '" + model + "'");
  const std::string attention = field(model, "attention");
  return std::stod(field(model, "width")) * std::stod(field(attention, "heads")) +
         std::stod(field(attention, "position"));
}

double expected_control(int host, int variant) {
  return (8 + host) * (2 + host % 3) + (variant < 0 ? 1 : 10 + variant);
}

}  // namespace meshloom::tests
