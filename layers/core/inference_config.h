// The config of a model for inference: without the nodes and fields that only have an effect in training.
#pragma once

#include <memory>

#include "layers/config/config.h"

namespace meshloom::layers {

// A config that does something in training only, such as dropout or reporting.
class TrainingOnly {
 public:
  virtual ~TrainingOnly() = default;
  // What takes its place in inference. Its module has the same parameters, at the same paths.
  virtual std::unique_ptr<Config> inference_config() const = 0;
};

// A copy of `model` in which every TrainingOnly node is replaced by its inference_config().
std::unique_ptr<Config> inference_config(const Config& model);

}  // namespace meshloom::layers
