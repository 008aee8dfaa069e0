// What a model is once nothing is learned any more: without what only trains or watches it.
#pragma once

#include <memory>

#include "layers/config/config.h"

namespace meshloom::layers {

// A config that stands for another one outside training: a wrapper that drops or reports, a field that does. Their modules
// have the same parameters, at the same paths.
class ForTraining {
 public:
  virtual ~ForTraining() = default;
  virtual std::unique_ptr<Config> in_use() const = 0;
};

// `model` with what each such config stands for in its place.
std::unique_ptr<Config> in_use(const Config& model);

}  // namespace meshloom::layers
