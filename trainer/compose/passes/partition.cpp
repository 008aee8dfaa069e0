#include "trainer/compose/passes/partition.h"

#include <map>
#include <string>
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

void check_mesh(const std::vector<MeshAxis>& mesh) {
  const Topology checked(mesh);
  for (const MeshAxis& axis : mesh)
    if (axis.size > 1)
      throw hal::Error("mesh axis '" + axis.name + "'",
                       "must have size 1: partitioning over several ranks is not supported yet",
                       std::to_string(axis.size));
}

kernels::Program partition(kernels::Program program, const kernels::Catalog& catalog,
                           const std::vector<MeshAxis>& mesh) {
  check_mesh(mesh);
  for (const kernels::Call& call : program.calls) {
    const kernels::CallTypes types(program, call);
    const std::string rule = catalog.contract(call.op).partition(types.view(call));
    const std::string where = "partition of program '" + program.name + "', " + call.op +
                              (call.path.empty() ? "" : " in " + call.path);
    const std::size_t arrow = rule.find("->");
    if (arrow == std::string::npos)
      throw hal::Error(where, "a partition rule must read \"inputs->outputs\"", "'" + rule + "'");
    std::map<char, std::int64_t> sizes;
    check_side(where, rule, split(rule.substr(0, arrow)), types.inputs, sizes);
    check_side(where, rule, split(rule.substr(arrow + 2)), types.outputs, sizes);
  }
  return program;
}

}  // namespace meshloom::trainer
