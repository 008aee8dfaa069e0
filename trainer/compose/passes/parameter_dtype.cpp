#include "trainer/compose/passes/parameter_dtype.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cast/cast.h"
#include "kernels/program/builder.h"
#include "kernels/stochastic_round/stochastic_round.h"
#include "layers/core/random.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::DType;
using kernels::Program;
using kernels::Tensor;
using kernels::ValueId;

constexpr const char* kRngState = "rng_state";

class Storing {
 public:
  Storing(Program& program, const kernels::Catalog& catalog, const std::set<std::string>& names)
      : program_(program), builder_(catalog, program) {
    for (const ValueId id : program.inputs) {
      kernels::Value& value = program.value(id);
      if (value.name == kRngState) rng_state_ = builder_.tensor(id);
      if (!names.count(value.name) || value.type.dtype != DType::f32) continue;
      value.type.dtype = DType::bf16;
      stored_.insert(id);
    }
    for (const kernels::Donation& donation : program.donations)
      if (stored_.count(donation.input)) updated_[donation.output] = donation.input;
  }

  void run() {
    std::vector<ValueId> to(program_.values.size());
    std::iota(to.begin(), to.end(), 0);
    for (Call& call : std::exchange(program_.calls, {})) {
      if (call.op == "cast" && stored_.count(call.inputs[0]) &&
          program_.value(call.outputs[0]).type.dtype == DType::bf16) {
        to[at(call.outputs[0])] = call.inputs[0];
        continue;
      }
      widen_inputs(call);
      const std::vector<ValueId> outputs = call.outputs;
      builder_.path = call.path;
      builder_.phase = call.phase;
      program_.calls.push_back(std::move(call));
      for (const ValueId id : outputs)
        if (const auto found = updated_.find(id); found != updated_.end()) round(id, found->second);
    }
    for (std::size_t v = to.size(); v < program_.values.size(); ++v) to.push_back(static_cast<ValueId>(v));
    replace_uses(program_, std::move(to));
  }

 private:
  void widen_inputs(Call& call) {
    builder_.path = call.path;
    builder_.phase = call.phase;
    std::map<ValueId, ValueId> here;
    std::map<ValueId, ValueId>& wide = call.phase == kernels::Phase::update ? in_update_ : here;
    for (ValueId& id : call.inputs) {
      if (!stored_.count(id) || call.op == "cast") continue;
      if (const auto known = wide.find(id); known != wide.end()) {
        id = known->second;
        continue;
      }
      const std::vector<std::string> axes = program_.value(id).axes;
      const Tensor copy = kernels::cast(builder_.tensor(id), DType::f32);
      program_.value(copy.id).axes = axes;
      id = wide[id] = copy.id;
    }
  }

  void round(ValueId next, ValueId parameter) {
    if (!rng_state_) rng_state_ = builder_.input(kRngState, {DType::i32, {3}}, kernels::Role::input);
    const std::string name = program_.value(parameter).name;
    const layers::Key key = layers::fold_in(layers::fold_in_path({}, name), "stochastic_round");
    const Tensor rounded = kernels::stochastic_round(builder_.tensor(next), rng_state_, key.value);
    kernels::Value& wide = program_.value(next);
    kernels::Value& value = program_.value(rounded.id);
    std::swap(wide.name, value.name);
    std::swap(wide.role, value.role);
    value.axes = wide.axes;
    for (kernels::Donation& donation : program_.donations)
      if (donation.output == next && donation.input == parameter) donation.output = rounded.id;
    for (ValueId& id : program_.outputs)
      if (id == next) id = rounded.id;
  }

  Program& program_;
  kernels::Builder builder_;
  std::set<ValueId> stored_;
  std::map<ValueId, ValueId> updated_;    // what a parameter becomes -> the parameter
  std::map<ValueId, ValueId> in_update_;  // a parameter -> its f32 copy
  Tensor rng_state_;
};

}  // namespace

Program parameters_in_bf16(Program program, const kernels::Catalog& catalog,
                           const std::set<std::string>& names) {
  Storing(program, catalog, names).run();
  return program;
}

}  // namespace meshloom::trainer
