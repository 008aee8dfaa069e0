#include "trainer/compose/passes/differentiate.h"

#include <utility>

#include "hal/error.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Builder;
using kernels::Call;
using kernels::Program;
using kernels::Tensor;
using kernels::ValueId;

// The cotangents of each value so far.
class Cotangents {
 public:
  Cotangents(std::size_t values, const std::vector<Tensor>& wrt) : parts_(values), summed_(values, 0) {
    for (const Tensor& tensor : wrt) summed_[at(tensor.id)] = 1;
  }

  void add(ValueId id, Tensor part) {
    if (at(id) >= parts_.size()) return;
    parts_[at(id)].push_back(part);
    if (summed_[at(id)]) total(id);
  }
  // Their sum, in the order in which they were added; an empty tensor when there are none.
  Tensor total(ValueId id) {
    std::vector<Tensor>& parts = parts_[at(id)];
    if (parts.empty()) return {};
    Tensor sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) sum = kernels::add(sum, parts[i]);
    parts = {sum};
    return sum;
  }

 private:
  std::vector<std::vector<Tensor>> parts_;
  std::vector<char>
      summed_;  // of parameters: summed at once, because each part that is kept takes as much memory as the parameter
};

std::vector<char> influenced_by(const Program& program, const std::vector<Tensor>& wrt) {
  std::vector<char> marks(program.values.size(), 0);
  for (const Tensor& tensor : wrt) marks[at(tensor.id)] = 1;
  for (const Call& call : program.calls) {
    bool any = false;
    for (ValueId id : call.inputs) any = any || marks[at(id)];
    if (any)
      for (ValueId id : call.outputs) marks[at(id)] = 1;
  }
  return marks;
}

std::vector<Tensor> tensors(Builder& builder, const std::vector<ValueId>& ids) {
  std::vector<Tensor> list;
  for (ValueId id : ids) list.push_back(builder.tensor(id));
  return list;
}

std::string place(const Call& call) { return (call.path.empty() ? "" : call.path + ": ") + call.op; }

}  // namespace

std::vector<Tensor> differentiate(Builder& builder, Tensor of, const std::vector<Tensor>& wrt, Tensor scale) {
  Program& program = builder.program();
  if (of.type().elements() != 1)
    throw hal::Error("differentiate", "only a single number can be differentiated", to_string(of.type()));
  const std::vector<char> influenced = influenced_by(program, wrt);
  const std::string path = builder.path;
  const kernels::Phase phase = std::exchange(builder.phase, kernels::Phase::backward);
  Cotangents cotangents(program.values.size(), wrt);

  const std::size_t forward_calls = program.calls.size();
  bool seeded = false;
  for (std::size_t i = forward_calls; i-- > 0;) {
    const Call call = program.calls[i];  // a copy, because the list grows below
    builder.path = call.path;
    if (!seeded)
      for (ValueId id : call.outputs)
        if (id == of.id) {
          cotangents.add(id, scale ? scale : kernels::constant(builder, 1.0, of.shape()));
          seeded = true;
        }
    bool wanted = false;
    for (ValueId id : call.inputs) wanted = wanted || influenced[at(id)];
    if (!wanted) continue;
    std::vector<Tensor> arriving;
    bool any = false;
    for (ValueId id : call.outputs) {
      arriving.push_back(cotangents.total(id));
      any = any || arriving.back();
    }
    if (!any) continue;
    const kernels::Contract& contract = builder.catalog().contract(call.op);
    if (!contract.gradient)
      throw hal::Error(place(call), "the op must have a gradient, because parameters before it need one");
    const std::vector<Tensor> inputs = tensors(builder, call.inputs),
                              outputs = tensors(builder, call.outputs);
    const std::vector<Tensor> parts = contract.gradient({builder, call, inputs, outputs, arriving});
    if (parts.size() != call.inputs.size())
      throw hal::Error(place(call), "the gradient must have one cotangent per input",
                       std::to_string(parts.size()) + " for " + std::to_string(call.inputs.size()));
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const ValueId input = call.inputs[k];
      if (!parts[k] || !influenced[at(input)]) continue;
      // The gradient of a low-precision copy of a parameter is not rounded, because it becomes the
      // parameter's.
      const kernels::TensorType type = program.value(input).type;
      const auto wide = [&] {
        return parts[k].type() == kernels::widened(type) &&
               kernels::gradient_dtype(builder.tensor(input)) == kernels::DType::f32;
      };
      if (parts[k].type() != type && !wide())
        throw hal::Error(place(call),
                         "a cotangent must have the type of its value " + to_string(inputs[k].type()),
                         to_string(parts[k].type()));
      cotangents.add(input, parts[k]);
    }
  }

  std::vector<Tensor> gradients;
  for (const Tensor& tensor : wrt) {
    const kernels::Value value = program.value(tensor.id);
    builder.path = value.name;
    const Tensor gradient = cotangents.total(tensor.id);
    if (!gradient)
      throw hal::Error("parameter '" + value.name + "'",
                       "must influence the loss, or be left out of the model");
    kernels::Value& into = program.value(gradient.id);
    // Two parameters may share one cotangent (of their sum): it is named after the first.
    if (into.role == kernels::Role::activation) {
      into.role = kernels::Role::gradient;
      into.name = "grad/" + value.name;
      into.axes = value.axes;
    }
    gradients.push_back(gradient);
  }
  builder.path = path;
  builder.phase = phase;
  return gradients;
}

}  // namespace meshloom::trainer
