// How a plain model comes out of one with adapters or packed weights: which config stands for what, and what
// the parameters add up to.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "layers/config/config.h"

namespace meshloom::layers {

// One parameter of the plain model from those that stand for it. On the host, in double.
struct Fold {
  std::string target;                // its path, which one of the sources may have
  kernels::Shape shape;              // of the target
  std::vector<std::string> sources;  // what is read; the target itself as the folds before this one leave it
  // Values of the sources in their order, integers as numbers -> the new values of the target.
  std::function<std::vector<float>(const std::vector<std::vector<float>>& sources)> fold;
};

// A config whose module has a fold, and what stands in its place in the plain model.
class FoldableConfig {
 public:
  virtual ~FoldableConfig() = default;
  virtual std::unique_ptr<Config> plain() const = 0;
};
// Its module.
class Foldable {
 public:
  virtual ~Foldable() = default;
  // Throws Error where it cannot be folded.
  virtual Fold fold() const = 0;
};

// `model` without its adapters and packed weights, and what their parameters add up to, in the order to do it
// in.
struct Merged {
  std::unique_ptr<Config> model;
  std::vector<Fold> folds;
  int adapters = 0;  // how many of the folds are of adapters
};
Merged merge_adapters(const Config& model);

}  // namespace meshloom::layers
