#include "trainer/compose/passes/memory/donations.h"

#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "kernels/program/builder.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::ValueId;

bool direct(const Program& program, const kernels::Catalog& catalog, const Graph& graph,
            const std::vector<ValueId>& roots, const std::vector<int>& last_read,
            const kernels::Donation& donation) {
  const int writer = graph.definition_of(donation.output);
  if (writer < 0 || roots[at(donation.output)] != donation.output) return false;
  if (last_read[at(donation.input)] > writer) return false;
  if (last_read[at(donation.input)] < writer) return true;
  const Call& call = program.calls[at(writer)];
  const auto output = std::find(call.outputs.begin(), call.outputs.end(), donation.output);
  return writes_in_place(program, call, static_cast<int>(output - call.outputs.begin()), catalog, roots,
                         donation.input);
}

}  // namespace

bool writes_in_place(const Program& program, const Call& call, int output, const kernels::Catalog& catalog,
                     const std::vector<ValueId>& unit_of, ValueId unit) {
  const kernels::CallTypes types(program, call);
  const auto pairs = catalog.contract(call.op).in_place(types.view(call));
  bool any = false;
  for (std::size_t k = 0; k < call.inputs.size(); ++k) {
    if (unit_of[at(call.inputs[k])] != unit) continue;
    any = true;
    if (std::find(pairs.begin(), pairs.end(), std::pair(static_cast<int>(k), output)) == pairs.end())
      return false;
  }
  return any;
}

Program legalize_donations(Program program, const kernels::Catalog& catalog) {
  if (program.donations.empty()) return program;
  const Graph graph(program);
  const std::vector<ValueId> roots = view_roots(program, catalog);
  std::vector<int> last_read(program.values.size(), -1);  // by root
  for (std::size_t v = 0; v < roots.size(); ++v)
    if (!graph.readers[v].empty())
      last_read[at(roots[v])] = std::max(last_read[at(roots[v])], graph.readers[v].back());
  kernels::Builder builder(catalog, program);
  builder.phase = kernels::Phase::update;
  const auto copy = [&](ValueId id) {
    const kernels::TensorType type = program.value(id).type;
    if (type.dtype != kernels::DType::f32)
      throw hal::Error(
          "state '" + builder.path + "'",
          "only f32 state can be read after its new value is computed, because it must then be copied",
          to_string(type));
    return builder.call1("elementwise", {builder.tensor(id)}, {{"shape", type.shape}, {"expr", "x0"}}).id;
  };
  std::vector<std::pair<int, Call>> early;  // inserted after that call
  for (std::size_t d = 0; d < program.donations.size(); ++d) {
    const kernels::Donation donation = program.donations[d];
    if (direct(program, catalog, graph, roots, last_read, donation)) continue;
    builder.path = program.value(donation.input).name;
    ValueId source = donation.output;
    // The old contents of another donated input, possibly through a view, are copied before they are
    // overwritten.
    if (graph.overwritten[at(roots[at(source)])] >= 0) {
      const int definition = graph.definition_of(source);
      source = copy(source);
      early.emplace_back(definition, std::move(program.calls.back()));
      program.calls.pop_back();
    }
    const ValueId result = copy(source);
    program.donations[d].output = result;
    for (ValueId& id : program.outputs)
      if (id == donation.output) id = result;
  }
  std::stable_sort(early.begin(), early.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [behind, call] : early)
    program.calls.insert(program.calls.begin() + behind + 1, std::move(call));
  return program;
}

}  // namespace meshloom::trainer
