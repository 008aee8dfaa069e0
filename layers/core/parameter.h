// What a module declares about the tensors that it owns. Nothing is allocated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "layers/core/initializer.h"
#include "layers/core/quantized_storage.h"

namespace meshloom::layers {

struct Parameter {
  std::string path;  // "decoder/stack/layer0/attention/q_proj/weight"
  kernels::TensorType type;
  std::vector<std::string> axes;  // one per dimension, see axes.h
  bool decay = true;              // whether weight decay applies
  bool frozen = false;            // it is not trained (see Frozen)
  bool adapter = false;           // an adapter (adapter.h) has added it; a checkpoint may be without it
  std::shared_ptr<const Initializer> init;
  std::int64_t depth = 1;                           // see InitArgs
  std::shared_ptr<const QuantizedStorage> storage;  // nullptr = stored as it is

  // Writes elements [begin, begin + count), or all, of the initial values in a run with this seed. If the parameter is
  // stored quantised, these are values of the tensor that it stands for.
  void initialize(std::uint64_t seed, std::int64_t begin, std::int64_t count, float* into) const {
    const std::string& name = storage ? storage->source : path;
    const kernels::Shape& shape = storage ? storage->type.shape : type.shape;
    init->fill_range({fold_in_path(Key{seed}, name), shape, depth}, begin, count, into);
  }
  void initialize(std::uint64_t seed, float* into) const { initialize(seed, 0, type.elements(), into); }
};

// A tensor that is kept from step to step and is not trained. It is initialised to zeros.
struct State {
  std::string path;
  kernels::TensorType type;
  std::vector<std::string> axes;
};

}  // namespace meshloom::layers
