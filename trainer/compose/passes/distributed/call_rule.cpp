#include "trainer/compose/passes/distributed/call_rule.h"

namespace meshloom::trainer {

kernels::PartitionRule rule_of(const kernels::Program& program, const kernels::Call& call,
                               const kernels::Catalog& catalog) {
  return kernels::partition_rule(catalog.contract(call.op), kernels::CallTypes(program, call).view(call),
                                 "partition of program '" + program.name + "', " + call.op +
                                     (call.path.empty() ? "" : " in " + call.path));
}

std::vector<std::int64_t> sizes_of(char letter, const std::vector<std::string>& letters,
                                   const std::vector<kernels::TensorType>& types) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < letters.size(); ++i)
    for (std::size_t d = 0; d < letters[i].size(); ++d)
      if (letters[i][d] == letter) sizes.push_back(types[i].shape[d]);
  return sizes;
}

}  // namespace meshloom::trainer
