// What a module declares about the tensors it owns. Nothing is allocated.
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
  bool decay = true;              // weight decay applies
  bool frozen = false;            // does not learn (see Frozen)
  bool adapter = false;  // added to a model by an adapter (adapter.h); a checkpoint may be without it
  std::shared_ptr<const Initializer> init;
  std::int64_t depth = 1;                  // see InitArgs
  std::shared_ptr<const Packing> packing;  // none: stored as it is

  // Elements [begin, begin + count) of what the parameter starts with in a run of this seed; or all of them. Where it
  // is packed, of the tensor that it stands for.
  void initialize(std::uint64_t seed, std::int64_t begin, std::int64_t count, float* into) const {
    const std::string& name = packing ? packing->source : path;
    const kernels::Shape& shape = packing ? packing->type.shape : type.shape;
    init->fill_range({fold_path(Key{seed}, name), shape, depth}, begin, count, into);
  }
  void initialize(std::uint64_t seed, float* into) const { initialize(seed, 0, type.elements(), into); }
};

// A tensor that persists from step to step and is not learned. Starts as zeros.
struct State {
  std::string path;
  kernels::TensorType type;
  std::vector<std::string> axes;
};

}  // namespace meshloom::layers
