// Values for programs that the contracts' references run.
#pragma once

#include <vector>

#include "layers/models/trace.h"
#include "tests/kernels/interpret.h"

namespace meshloom::tests {

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
