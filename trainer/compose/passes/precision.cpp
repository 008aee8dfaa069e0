#include "trainer/compose/passes/precision.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::DType;
using kernels::Program;
using kernels::ValueId;

class Narrower {
 public:
  Narrower(DType dtype, Program& program, const kernels::Catalog& catalog)
      : dtype_(dtype), program_(program), catalog_(catalog) {}

  void run() {
    for (Call& call : std::exchange(program_.calls, {})) rewrite(std::move(call));
  }

  // The value that leaves the program for `id`: itself, or its value in f32.
  ValueId leaving(ValueId id) {
    if (id == kernels::kNoValue || !hal::is_low_precision(program_.value(id).type.dtype)) return id;
    if (const auto known = left_.find(id); known != left_.end()) return known->second;
    Call reader;
    reader.path = path_of(id);
    const ValueId wide = as(id, DType::f32, reader);
    const kernels::Value old = program_.value(id);
    kernels::Value& value = program_.value(wide);
    value.role = old.role;
    value.name = old.name;
    program_.value(id).role = kernels::Role::activation;
    program_.value(id).name.clear();
    return left_[id] = wide;
  }

 private:
  void rewrite(Call call) {
    const kernels::Contract& contract = catalog_.contract(call.op);
    const kernels::CallTypes types(program_, call);
    const kernels::LowPrecision how =
        contract.low_precision ? contract.low_precision(types.view(call)) : kernels::LowPrecision{};
    const auto one_of = [](const std::vector<int>& list, std::size_t input) {
      return std::find(list.begin(), list.end(), static_cast<int>(input)) != list.end();
    };
    bool low_precision = how.always;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const kernels::Value& value = program_.value(call.inputs[i]);
      const bool same = one_of(how.same, i);
      low_precision = low_precision ||
                      ((same || one_of(how.any, i)) && hal::is_low_precision(value.type.dtype)) ||
                      (same && value.role == kernels::Role::parameter);
    }
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const bool same = one_of(how.same, i);
      if (!one_of(how.any, i))
        call.inputs[i] = as(call.inputs[i], low_precision && same ? dtype_ : DType::f32, call);
    }
    if (low_precision && how.attribute) call.attrs.set("dtype", std::string(hal::to_string(dtype_)));
    const std::vector<kernels::TensorType> results = contract.infer(program_.types(call.inputs), call.attrs);
    for (std::size_t o = 0; o < results.size(); ++o) program_.value(call.outputs[o]).type = results[o];
    program_.calls.push_back(std::move(call));
  }

  // The value in `dtype`, cast before its first reader. Integers and values of that dtype are not cast.
  ValueId as(ValueId id, DType dtype, const Call& reader) {
    const kernels::Value value = program_.value(id);
    if (!hal::is_float(value.type.dtype) || value.type.dtype == dtype) return id;
    if (const auto known = casts_.find({id, dtype}); known != casts_.end()) return known->second;
    Call call;
    call.op = "cast";
    call.inputs = {id};
    call.outputs = {static_cast<ValueId>(program_.values.size())};
    call.attrs.set("dtype", std::string(hal::to_string(dtype)));
    call.path = reader.path;
    call.phase = reader.phase;
    program_.values.push_back({{dtype, value.type.shape}, "", kernels::Role::activation, value.axes, ""});
    casts_[{id, dtype}] = call.outputs[0];
    program_.calls.push_back(std::move(call));
    return program_.calls.back().outputs[0];
  }

  std::string path_of(ValueId id) const {
    for (const Call& call : program_.calls)
      if (std::find(call.outputs.begin(), call.outputs.end(), id) != call.outputs.end()) return call.path;
    return {};
  }

  DType dtype_;
  Program& program_;
  const kernels::Catalog& catalog_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
  std::map<ValueId, ValueId> left_;
};

}  // namespace

void compute_in(DType dtype, layers::Traced& traced, const kernels::Catalog& catalog) {
  if (dtype == DType::f32) return;
  Program& program = traced.program;
  Narrower pass(dtype, program, catalog);
  pass.run();
  // The next value of a cache has the type of the cache.
  const auto kept = [&](ValueId id) {
    return std::any_of(
        program.donations.begin(), program.donations.end(), [&](const kernels::Donation& donation) {
          return donation.output == id && program.value(donation.input).role == kernels::Role::cache;
        });
  };
  for (ValueId& id : program.outputs)
    if (!kept(id)) id = pass.leaving(id);
  for (kernels::Donation& donation : program.donations)
    if (!kept(donation.output)) donation.output = pass.leaving(donation.output);
  for (auto& [from, to] : traced.state_updates) to = pass.leaving(to);
  for (auto& [path, value] : traced.summaries) value = pass.leaving(value);
  for (ValueId* id : {&traced.loss_sum, &traced.token_count, &traced.logits, &traced.hidden_states})
    *id = pass.leaving(*id);
}

}  // namespace meshloom::trainer
