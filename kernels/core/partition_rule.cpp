#include "kernels/core/partition_rule.h"

#include <map>
#include <utility>

#include "hal/error.h"

namespace meshloom::kernels {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == ',')
      parts.emplace_back();
    else if (c != ' ')
      parts.back() += c;
  }
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

// Removes "{n}" from the ends of parts, and returns what stood in the braces.
std::vector<std::string> take_braces(std::vector<std::string>& parts) {
  std::vector<std::string> braces;
  for (std::string& part : parts) {
    const std::size_t open = part.find('{');
    braces.push_back(open == std::string::npos ? "" : part.substr(open + 1, part.find('}') - open - 1));
    if (open != std::string::npos) part.resize(open);
  }
  return braces;
}

// Leaves the first letter of each "(bs)", and returns the second by dimension, '.' where there is none.
std::vector<std::string> take_groups(std::vector<std::string>& parts, const std::string& where,
                                     const std::string& rule) {
  std::vector<std::string> inner;
  for (std::string& part : parts) {
    std::string first, second;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const bool group = part[i] == '(';
      if (group && (i + 3 >= part.size() || part[i + 3] != ')'))
        throw hal::Error(where, "a group of a partition rule must have two letters", "'" + rule + "'");
      first += part[group ? i + 1 : i];
      second += group ? part[i + 2] : '.';
      if (group) i += 3;
    }
    part = first;
    inner.push_back(second);
  }
  return inner;
}

// Removes the numbers behind letters of inputs, and keeps them.
void take_units(std::vector<std::string>& parts, std::map<char, std::int64_t>& units) {
  for (std::string& part : parts) {
    std::string letters;
    for (const char c : part) {
      if (c < '0' || c > '9') {
        letters += c;
      } else if (!letters.empty()) {
        std::int64_t& unit = units[letters.back()];
        unit = 10 * unit + (c - '0');
      }
    }
    part = std::move(letters);
  }
}

// Checks the letters of the inputs or of the outputs of one call; `sizes` has the letters seen so far.
void check_side(const std::string& where, const std::string& rule, const std::vector<std::string>& parts,
                const std::vector<TensorType>& types, std::map<char, std::int64_t>& sizes) {
  // A scalar among several tensors has an empty part ("ab,->ab"); a scalar alone has none.
  const bool lone_scalar = parts.empty() && types.size() == 1 && types[0].rank() == 0;
  if (parts.size() != types.size() && !lone_scalar)
    throw hal::Error(where, "a partition rule must name every input and output", "'" + rule + "'");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (static_cast<int>(parts[i].size()) != types[i].rank())
      throw hal::Error(where, "a partition rule must have one letter per dimension of " + to_string(types[i]),
                       "'" + rule + "'");
    for (std::size_t d = 0; d < parts[i].size(); ++d) {
      const char letter = parts[i][d];
      if (letter == '.') continue;
      const std::int64_t size = types[i].shape[d];
      const auto [seen, fresh] = sizes.emplace(letter, size);
      if (!fresh && seen->second % size != 0 && size % seen->second != 0)
        throw hal::Error(
            where, "dimensions under one letter of a partition rule must be equal or multiples",
            std::to_string(seen->second) + " and " + std::to_string(size) + " in '" + rule + "'");
    }
  }
}

}  // namespace

std::set<char> PartitionRule::own_letters() const {
  std::set<char> all;
  for (const auto* list : {&own_inputs, &own_outputs})
    for (const std::string& letters : *list) all.insert(letters.begin(), letters.end());
  return all;
}

PartitionRule partition_rule(const Contract& contract, const CallView& call, const std::string& where) {
  const std::string text = contract.partition(call);
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos)
    throw hal::Error(where, "a partition rule must read \"inputs->outputs\"", "'" + text + "'");
  PartitionRule rule;
  rule.inputs = split(text.substr(0, arrow));
  rule.outputs = split(text.substr(arrow + 2));
  take_units(rule.inputs, rule.units);
  rule.own_inputs = take_braces(rule.inputs);
  rule.own_outputs = take_braces(rule.outputs);
  rule.inner_inputs = take_groups(rule.inputs, where, text);
  rule.inner_outputs = take_groups(rule.outputs, where, text);
  std::map<char, std::int64_t> sizes;
  check_side(where, text, rule.inputs, call.inputs, sizes);
  check_side(where, text, rule.outputs, call.outputs, sizes);
  rule.inputs.resize(call.inputs.size());  // a lone scalar has no part
  rule.outputs.resize(call.outputs.size());
  rule.own_inputs.resize(call.inputs.size());
  rule.own_outputs.resize(call.outputs.size());
  rule.inner_inputs.resize(call.inputs.size());
  rule.inner_outputs.resize(call.outputs.size());
  return rule;
}

}  // namespace meshloom::kernels
