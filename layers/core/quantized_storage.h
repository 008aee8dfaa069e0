// Parameters that are stored in another form than the tensor they stand for, as four-bit weights are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/program/types.h"

namespace meshloom::layers {

struct Packing {
  std::string source;        // path that the tensor has where it is not packed: what checkpoints call it
  kernels::TensorType type;  // its type, f32
  // All values of the tensor -> the parameter's bytes. Throws Error for values that cannot be packed.
  std::function<void(std::span<const float> values, std::span<std::byte> into)> pack;
  bool counts = true;  // of the parameters that one tensor becomes, the one that counts as its elements
};

}  // namespace meshloom::layers
