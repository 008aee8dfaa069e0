#include "trainer/compose/passes/distributed/own_rows.h"

#include <algorithm>
#include <string>

#include "kernels/core/partition_rule.h"
#include "trainer/compose/passes/distributed/call_rule.h"
#include "trainer/mesh/spec.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::PartitionRule;
using kernels::ValueId;

bool only_own_users(const kernels::Program& program, const kernels::Catalog& catalog, const Call& sort) {
  const auto shape = [&](ValueId id) -> const kernels::Shape& { return program.value(id).type.shape; };
  std::set<ValueId> own(sort.outputs.begin(), sort.outputs.end());
  const auto is_own = [&](ValueId id) { return own.count(id) != 0; };
  for (const Call& call : program.calls) {
    if (std::none_of(call.inputs.begin(), call.inputs.end(), is_own)) continue;
    const PartitionRule rule = rule_of(program, call, catalog);
    const bool braces = !rule.own_letters().empty();
    // Elementwise calls keep rows where they are, if no input has rows of another kind.
    if (!braces && call.op != "elementwise" && call.op != "cast") return false;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const ValueId id = call.inputs[i];
      if (braces ? is_own(id) == rule.own_inputs[i].empty()
                 : !is_own(id) && shape(id) == shape(call.outputs[0]))
        return false;
    }
    for (std::size_t o = 0; o < call.outputs.size(); ++o)
      if (!braces || !rule.own_outputs[o].empty()) own.insert(call.outputs[o]);
  }
  return std::none_of(program.outputs.begin(), program.outputs.end(), is_own);
}

}  // namespace

std::set<const Call*> calls_that_sort_own_rows(const kernels::Program& program,
                                               const kernels::Catalog& catalog, AxisSet rows,
                                               const Topology& mesh) {
  std::set<const Call*> calls;
  const auto named = [](const std::string& text) { return !text.empty(); };
  for (const Call& call : program.calls) {
    const PartitionRule rule = rule_of(program, call, catalog);
    if (std::any_of(rule.own_inputs.begin(), rule.own_inputs.end(), named) || rule.own_letters().empty())
      continue;
    const std::int64_t rows_of_call = program.value(call.inputs[0]).type.shape[0];
    if (divides(rows_of_call, rows, mesh) && only_own_users(program, catalog, call)) calls.insert(&call);
  }
  return calls;
}

std::int64_t sequences_in(std::int64_t places, const kernels::Program& program, const Topology& mesh) {
  for (const ValueId id : program.inputs) {
    const kernels::Value& value = program.value(id);
    if (value.axes.size() < 2 || value.axes[0] != "batch" || value.axes[1] != "seq") continue;
    if (places % (value.type.shape[0] * mesh.size(AxisName::seq)) == 0) return value.type.shape[0];
  }
  return 1;
}

}  // namespace meshloom::trainer
