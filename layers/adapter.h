// What is put around a trained layer to change it by few new parameters. The layer inside is frozen and keeps
// its place: its parameters have the paths they have without the adapter, so that checkpoints fit both ways.
#pragma once

#include <memory>
#include <string>

#include "layers/fold.h"
#include "layers/layer.h"
#include "layers/linear.h"

namespace meshloom::layers {

class Adapter : public Layer, public Foldable {
 public:
  struct Config : Layer::Config, FoldableConfig {
    Child<Layer::Config> base = Linear::Config{};  // the adapted layer, as it was
    std::unique_ptr<layers::Config> plain() const final { return base->clone(); }
  };

  Adapter(const Config& config, const Place& place);
  // x (..., input) -> (..., output)
  Tensor forward(Context& ctx, Tensor x) final;

 protected:
  // x (N, input), y = the adapted layer's (N, output) for it.
  virtual Tensor adapt(Context& ctx, Tensor x, Tensor y) = 0;
  // The adapted layer's own parameter of that name, or nullptr.
  const Parameter* base_parameter(const std::string& name) const;
  // Its (output, input) matrix. Throws Error where it has none.
  const Parameter& base_weight() const;
  // The path of that matrix, also where it is packed: what a fold of it reads and gives.
  std::string folded_weight() const;

  Dims dims_;

 private:
  Layer* base_;
};

}  // namespace meshloom::layers
