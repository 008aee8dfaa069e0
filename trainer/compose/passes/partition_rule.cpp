#include "trainer/compose/passes/partition_rule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {
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

// Checks the letters of the inputs or of the outputs of one call; `sizes` has the letters seen so far.
void check_side(const std::string& where, const std::string& rule, const std::vector<std::string>& parts,
                const std::vector<kernels::TensorType>& types, std::map<char, std::int64_t>& sizes) {
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

bool Letters::has_own() const {
  const auto named = [](const std::string& letters) { return !letters.empty(); };
  return std::any_of(own_inputs.begin(), own_inputs.end(), named) ||
         std::any_of(own_outputs.begin(), own_outputs.end(), named);
}

Letters letters_of(const std::string& program, const kernels::Call& call, const kernels::CallTypes& types,
                   const kernels::Contract& contract) {
  const std::string rule = contract.partition(types.view(call));
  const std::string where =
      "partition of program '" + program + "', " + call.op + (call.path.empty() ? "" : " in " + call.path);
  const std::size_t arrow = rule.find("->");
  if (arrow == std::string::npos)
    throw hal::Error(where, "a partition rule must read \"inputs->outputs\"", "'" + rule + "'");
  Letters letters{split(rule.substr(0, arrow)), split(rule.substr(arrow + 2)), {}, {}};
  letters.own_inputs = take_braces(letters.inputs);
  letters.own_outputs = take_braces(letters.outputs);
  std::map<char, std::int64_t> sizes;
  check_side(where, rule, letters.inputs, types.inputs, sizes);
  check_side(where, rule, letters.outputs, types.outputs, sizes);
  letters.inputs.resize(types.inputs.size());  // a lone scalar has no part
  letters.outputs.resize(types.outputs.size());
  letters.own_inputs.resize(types.inputs.size());
  letters.own_outputs.resize(types.outputs.size());
  return letters;
}

}  // namespace meshloom::trainer
