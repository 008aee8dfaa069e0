#include "kernels/program/builder.h"

#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/program/sizes.h"

namespace meshloom::kernels {

const TensorType& Tensor::type() const {
  if (!builder || id == kNoValue) throw hal::Error("program", "a tensor was used that was never made");
  return builder->program().value(id).type;
}

Tensor Builder::input(std::string name, TensorType type, Role role, std::vector<std::string> axes) {
  if (!axes.empty() && static_cast<int>(axes.size()) != type.rank())
    throw hal::Error("program input '" + name + "'",
                     "needs one axis name per dimension of " + to_string(type), std::to_string(axes.size()));
  require_countable("program input '" + name + "'", type);
  const auto id = static_cast<ValueId>(program_.values.size());
  program_.values.push_back({std::move(type), std::move(name), role, std::move(axes), ""});
  program_.inputs.push_back(id);
  return {this, id};
}

std::vector<Tensor> Builder::call(std::string_view op, const std::vector<Tensor>& inputs, Attrs attrs) {
  const Contract& contract = catalog_.contract(op);
  Call call;
  call.op = op;
  call.attrs = std::move(attrs);
  call.path = path;
  call.phase = phase;
  std::vector<TensorType> types;
  for (const Tensor& input : inputs) {
    if (input.builder != this)
      throw hal::Error(path + ": " + call.op, "every input must be a value of this program");
    types.push_back(input.type());
    call.inputs.push_back(input.id);
  }
  std::vector<TensorType> results;
  try {
    results = contract.infer(types, call.attrs);
    for (const TensorType& type : results) require_countable(call.op + ", its result", type);
  } catch (const hal::Error& error) {
    if (path.empty()) throw;
    throw hal::Error(path + ": " + error.where(), error.rule(), error.found());
  }
  std::vector<Tensor> outputs;
  for (TensorType& type : results) {
    const auto id = static_cast<ValueId>(program_.values.size());
    program_.values.push_back({std::move(type), "", Role::activation, {}, ""});
    call.outputs.push_back(id);
    outputs.push_back({this, id});
  }
  program_.calls.push_back(std::move(call));
  return outputs;
}

Tensor Builder::call1(std::string_view op, const std::vector<Tensor>& inputs, Attrs attrs) {
  std::vector<Tensor> outputs = call(op, inputs, std::move(attrs));
  if (outputs.size() != 1)
    throw hal::Error(path + ": " + std::string(op), "was taken for an op with one output",
                     std::to_string(outputs.size()));
  return outputs.front();
}

void Builder::axes(Tensor tensor, std::vector<std::string> axes) {
  if (static_cast<int>(axes.size()) != tensor.type().rank())
    throw hal::Error(path, "needs one axis name per dimension of " + to_string(tensor.type()),
                     std::to_string(axes.size()));
  program_.value(tensor.id).axes = std::move(axes);
}

}  // namespace meshloom::kernels
