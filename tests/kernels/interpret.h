// Runs programs on the host by the contracts' references.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "kernels/core/catalog.h"

namespace meshloom::tests {

using Values = std::map<kernels::ValueId, kernels::HostTensor>;

// `values`, which must hold every program input, and the outputs of every call.
inline Values interpret(const kernels::Program& program, const kernels::Catalog& catalog, Values values) {
  for (kernels::ValueId id : program.inputs)
    if (!values.count(id))
      throw hal::Error("interpret " + program.name, "every input needs a value", program.value(id).name);
  for (const kernels::Call& call : program.calls) {
    const kernels::CallTypes types(program, call);
    std::vector<kernels::ConstTensorView> inputs;
    std::vector<kernels::HostTensor> results;
    std::vector<kernels::TensorView> outputs;
    for (kernels::ValueId id : call.inputs) {
      const kernels::HostTensor& tensor = values.at(id);
      inputs.push_back({tensor.type, tensor.data.data()});
    }
    for (const kernels::TensorType& type : types.outputs) results.emplace_back(type);
    for (kernels::HostTensor& tensor : results) outputs.push_back({tensor.type, tensor.data.data()});
    kernels::run_reference(catalog.contract(call.op), types.view(call), inputs, outputs);
    for (std::size_t i = 0; i < results.size(); ++i)
      values.insert_or_assign(call.outputs[i], std::move(results[i]));
  }
  return values;
}

}  // namespace meshloom::tests
