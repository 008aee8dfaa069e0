#include "trainer/compose/passes/frozen_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::DType;
using kernels::Program;
using kernels::ValueId;

bool casts_to(const Call& call, DType dtype) {
  return call.op == "cast" && call.attrs.text("dtype") == hal::to_string(dtype);
}

// Rows of the table are rounded to `dtype` as they are read, so that those of a table of it are the same.
bool looks_up_in(const Call& call, ValueId table, DType dtype) {
  return call.op == "embedding" && call.inputs[0] == table && call.attrs.has("dtype") &&
         call.attrs.text("dtype") == hal::to_string(dtype);
}

// Whether all that reads a value, or views of it, reads it in `dtype`.
bool read_in(const Program& program, const Graph& graph, ValueId id, DType dtype) {
  const std::vector<int>& readers = graph.readers_of(id);
  return !readers.empty() && !graph.outlives_program(id) &&
         std::all_of(readers.begin(), readers.end(), [&](int index) {
           const Call& call = program.calls[at(index)];
           return casts_to(call, dtype) || looks_up_in(call, id, dtype) ||
                  (call.op == "reshape" && read_in(program, graph, call.outputs[0], dtype));
         });
}

}  // namespace

std::set<std::string> frozen_weights(const Program& program,
                                     const std::vector<layers::ParameterInfo>& parameters, DType dtype) {
  std::set<std::string> frozen, names;
  for (const layers::ParameterInfo& info : parameters)
    if (info.frozen && info.type.dtype == DType::f32) frozen.insert(info.path);
  const Graph graph(program);
  for (const ValueId id : program.inputs)
    if (frozen.count(program.value(id).name) && read_in(program, graph, id, dtype))
      names.insert(program.value(id).name);
  return names;
}

void store_in(DType dtype, const std::set<std::string>& names, Program& program) {
  std::vector<char> stored(program.values.size(), 0);
  for (const ValueId id : program.inputs)
    if (names.count(program.value(id).name)) {
      program.value(id).type.dtype = dtype;
      stored[at(id)] = 1;
    }
  std::vector<ValueId> uses(program.values.size());
  std::iota(uses.begin(), uses.end(), ValueId{0});
  std::map<ValueId, ValueId> in_f32;
  for (Call& call : std::exchange(program.calls, {})) {
    if (!call.inputs.empty() && stored[at(call.inputs[0])] && casts_to(call, dtype)) {
      uses[at(call.outputs[0])] = call.inputs[0];
      continue;
    }
    if (call.op == "reshape" && stored[at(call.inputs[0])]) {  // a view has the type of what it shows
      program.value(call.outputs[0]).type.dtype = dtype;
      stored[at(call.outputs[0])] = 1;
    }
    for (ValueId& id : call.inputs) {
      if (!stored[at(id)] || looks_up_in(call, id, dtype) || call.op == "reshape") continue;
      const auto [wide, is_new] = in_f32.try_emplace(id, static_cast<ValueId>(program.values.size()));
      if (is_new) {
        const kernels::Value weight = program.value(id);
        program.values.push_back(
            {{DType::f32, weight.type.shape}, "", kernels::Role::activation, weight.axes, ""});
        uses.push_back(wide->second);
        stored.push_back(0);
        Call cast;
        cast.op = "cast";
        cast.inputs = {id};
        cast.outputs = {wide->second};
        cast.attrs.set("dtype", std::string(hal::to_string(DType::f32)));
        cast.path = call.path;
        cast.phase = call.phase;
        program.calls.push_back(std::move(cast));
      }
      id = wide->second;
    }
    program.calls.push_back(std::move(call));
  }
  replace_uses(program, std::move(uses));
}

}  // namespace meshloom::trainer
