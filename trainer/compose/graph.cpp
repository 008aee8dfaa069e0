#include "trainer/compose/graph.h"

#include <algorithm>
#include <numeric>

namespace meshloom::trainer {

using kernels::Call;
using kernels::Program;
using kernels::ValueId;

namespace {}  // namespace

Graph::Graph(const Program& program)
    : definition(program.values.size(), kNoDefinition),
      readers(program.values.size()),
      outlives(program.values.size(), 0),
      overwritten(program.values.size(), -1) {
  for (ValueId id : program.inputs) definition[at(id)] = kInputDefinition;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    for (ValueId id : call.inputs) {
      std::vector<int>& list = readers[at(id)];
      if (list.empty() || list.back() != static_cast<int>(i)) list.push_back(static_cast<int>(i));
    }
    for (ValueId id : call.outputs) definition[at(id)] = static_cast<int>(i);
  }
  for (ValueId id : program.outputs) outlives[at(id)] = 1;
  for (const kernels::Donation& donation : program.donations) {
    outlives[at(donation.output)] = 1;
    overwritten[at(donation.input)] = definition[at(donation.output)];
  }
}

std::vector<ValueId> view_roots(const Program& program, const kernels::Catalog& catalog) {
  std::vector<ValueId> roots(program.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const Call& call : program.calls)
    if (catalog.contract(call.op).view) roots[at(call.outputs[0])] = roots[at(call.inputs[0])];
  return roots;
}

void remove_dead_calls(Program& program) {
  std::vector<char> needed(program.values.size(), 0), keep(program.calls.size(), 0);
  for (ValueId id : program.outputs) needed[at(id)] = 1;
  for (const kernels::Donation& donation : program.donations) needed[at(donation.output)] = 1;
  for (std::size_t i = program.calls.size(); i-- > 0;) {
    const Call& call = program.calls[i];
    keep[i] = std::any_of(call.outputs.begin(), call.outputs.end(),
                          [&](ValueId id) { return needed[at(id)] != 0; });
    if (keep[i])
      for (ValueId id : call.inputs) needed[at(id)] = 1;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i)
    if (keep[i]) {
      if (kept != i) program.calls[kept] = std::move(program.calls[i]);
      ++kept;
    }
  program.calls.resize(kept);
}

void replace_uses(Program& program, std::vector<ValueId> to) {
  const auto final_of = [&](ValueId id) {
    while (to[at(id)] != id) id = to[at(id)];
    return id;
  };
  for (Call& call : program.calls)
    for (ValueId& id : call.inputs) id = final_of(id);
  for (ValueId& id : program.outputs) id = final_of(id);
  for (kernels::Donation& donation : program.donations) donation.output = final_of(donation.output);
}

}  // namespace meshloom::trainer
