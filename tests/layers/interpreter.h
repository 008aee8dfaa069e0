// Runs a program by the contracts' references: slow, and right.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "layers/models/trace.h"

namespace meshloom::tests {

using Values = std::map<kernels::ValueId, kernels::HostTensor>;

inline Values interpret(const kernels::Program& program, const kernels::Catalog& catalog, Values values) {
  for (const kernels::ValueId id : program.inputs)
    if (!values.count(id)) throw hal::Error("interpret", "every input needs a value", program.value(id).name);
  for (const kernels::Call& call : program.calls) {
    const kernels::CallTypes types(program, call);
    std::vector<kernels::ConstTensorView> inputs;
    std::vector<kernels::TensorView> outputs;
    for (const kernels::ValueId id : call.inputs)
      inputs.push_back({values.at(id).type, values.at(id).data.data()});
    for (const kernels::ValueId id : call.outputs) {
      kernels::HostTensor& out = values[id] = kernels::HostTensor(program.value(id).type);
      outputs.push_back({out.type, out.data.data()});
    }
    kernels::run_reference(catalog.contract(call.op), types.view(call), inputs, outputs);
  }
  return values;
}

inline std::vector<float> initial(const layers::ParameterInfo& parameter, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(parameter.type.elements()));
  parameter.initialize(seed, values.data());
  return values;
}

inline kernels::HostTensor host(const kernels::TensorType& type, const void* data) {
  kernels::HostTensor tensor(type);
  const auto* bytes = static_cast<const std::byte*>(data);
  tensor.data.assign(bytes, bytes + type.bytes());
  return tensor;
}

}  // namespace meshloom::tests
