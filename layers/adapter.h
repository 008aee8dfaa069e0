// What is put around a trained layer to change it by few new parameters. The layer inside is frozen and keeps its
// place: its parameters have the paths they have without the adapter, so that checkpoints fit both ways.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/linear.h"

namespace meshloom::layers {

// How an adapter's parameters go into the layer they adapt. On the host, in double.
struct Fold {
  std::string target;                // path of the parameter that takes the change
  std::vector<std::string> sources;  // of those that are read: `target` first, then the adapter's own
  // Values of the sources in their order -> the new values of the target.
  std::function<std::vector<float>(const std::vector<std::vector<float>>& sources)> fold;
};

class Adapter : public Layer {
 public:
  struct Config : Layer::Config {
    Child<Layer::Config> base = Linear::Config{};  // the adapted layer, as it was
  };

  Adapter(const Config& config, const Place& place);
  // x (..., input) -> (..., output)
  Tensor forward(Context& ctx, Tensor x) final;
  virtual Fold fold() const = 0;

 protected:
  // x (N, input), y = the adapted layer's (N, output) for it.
  virtual Tensor adapt(Context& ctx, Tensor x, Tensor y) = 0;
  // The adapted layer's own parameter of that name, or nullptr.
  const Parameter* base_parameter(const std::string& name) const;
  // Its (output, input) matrix. Throws Error where it has none.
  const Parameter& base_weight() const;

  Dims dims_;

 private:
  Layer* base_;
};

// `model` without its adapters, and what their parameters add up to.
struct Merged {
  std::unique_ptr<Config> model;
  std::vector<Fold> folds;
};
// Throws Error for an adapter that cannot be folded.
Merged merge_adapters(const Config& model);

}  // namespace meshloom::layers
