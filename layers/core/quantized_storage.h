// Parameters that store a tensor in another form, such as the codes and the scales of four-bit weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/program/types.h"

namespace meshloom::layers {

struct QuantizedStorage {
  std::string source;        // the path of the tensor if it were not quantised, which checkpoints use
  kernels::TensorType type;  // the type of the tensor, f32
  // Computes the bytes of the parameter from all values of the tensor. Throws Error if they cannot be quantised.
  std::function<void(std::span<const float> values, std::span<std::byte> into)> quantize;
  // A tensor becomes several parameters; exactly one of them counts its elements when the model's parameters are
  // counted.
  bool counts_elements = true;
};

}  // namespace meshloom::layers
