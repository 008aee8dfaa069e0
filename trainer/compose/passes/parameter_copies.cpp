#include "trainer/compose/passes/parameter_copies.h"

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/compose/graph.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::DType;
using kernels::Program;
using kernels::Role;
using kernels::ValueId;

bool casts_to(const Program& program, const Call& call, DType dtype) {
  return call.op == "cast" && program.value(call.outputs[0]).type.dtype == dtype;
}

bool updates(const Call& call) { return call.op == "adamw" || call.op == "adamw_8bit"; }

// Whether the donation is of a parameter to the p' that AdamW makes of this very parameter.
bool is_update(const Program& program, const Graph& graph, const kernels::Donation& donation) {
  const int definition = graph.definition_of(donation.output);
  if (definition < 0) return false;
  const Call& call = program.calls[at(definition)];
  return updates(call) && call.inputs[0] == donation.input && call.outputs[0] == donation.output;
}

}  // namespace

std::set<std::string> copied_parameters(const std::vector<const Program*>& programs, DType dtype) {
  std::set<std::string> cast, updated, names;
  std::map<std::string, int> writes;
  for (const Program* program : programs) {
    const Graph graph(*program);
    for (const Call& call : program->calls)
      if (casts_to(*program, call, dtype)) cast.insert(program->value(call.inputs[0]).name);
    for (const kernels::Donation& donation : program->donations) {
      const kernels::Value& value = program->value(donation.input);
      if (value.role != Role::parameter) continue;
      ++writes[value.name];
      if (is_update(*program, graph, donation)) updated.insert(value.name);
    }
  }
  for (const std::string& name : updated)
    if (cast.count(name) && writes.at(name) == 1) names.insert(name);
  return names;
}

void keep_copies(Program& program, const std::set<std::string>& parameters, DType dtype) {
  std::map<ValueId, ValueId> copies;  // by parameter
  std::vector<ValueId> uses(program.values.size());
  std::iota(uses.begin(), uses.end(), ValueId{0});
  const auto add = [&](ValueId like, const std::string& name) {
    const kernels::Value& value = program.value(like);
    program.values.push_back({{dtype, value.type.shape}, name, Role::parameter_copy, value.axes, ""});
    uses.push_back(static_cast<ValueId>(uses.size()));
    return uses.back();
  };
  const auto copy_of = [&](ValueId parameter) {
    const auto found = copies.find(parameter);
    if (found != copies.end()) return found->second;
    const ValueId copy = add(parameter, parameter_copy_name(program.value(parameter).name));
    program.inputs.push_back(copy);
    return copies[parameter] = copy;
  };
  const Graph graph(program);
  const auto is_copied = [&](ValueId id) {
    return graph.definition_of(id) == kInputDefinition && program.value(id).role == Role::parameter &&
           parameters.count(program.value(id).name) > 0;
  };
  for (Call& call : std::exchange(program.calls, {})) {
    if (casts_to(program, call, dtype) && is_copied(call.inputs[0])) {
      uses[at(call.outputs[0])] = copy_of(call.inputs[0]);
      continue;
    }
    program.calls.push_back(std::move(call));
  }
  for (const kernels::Donation donation : std::vector(program.donations)) {
    if (!is_copied(donation.input)) continue;
    const ValueId copy = copy_of(donation.input);
    for (Call& call : program.calls) {
      if (!updates(call) || call.outputs[0] != donation.output) continue;
      const ValueId next = add(donation.input, program.value(copy).name);
      call.attrs.set("dtype", std::string(hal::to_string(dtype)));
      call.outputs.push_back(next);
      program.outputs.push_back(next);
      program.donations.push_back({copy, next});
    }
  }
  replace_uses(program, std::move(uses));
}

}  // namespace meshloom::trainer
