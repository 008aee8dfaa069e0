// Adapters: wrappers that change a trained layer by a few new parameters. The layer inside is frozen, and its parameters
// keep the paths that they have without the adapter, so that a checkpoint fits the model with and without it.
#pragma once

#include <memory>
#include <string>

#include "layers/adapters/merge.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"
#include "layers/core/quantized_weight.h"

namespace meshloom::layers {

class Adapter : public Layer, public Mergeable {
 public:
  struct Config : Layer::Config, MergeableConfig {
    Child<Layer::Config> base = Linear::Config{};  // the adapted layer
    std::unique_ptr<layers::Config> merged_config() const final { return base->clone(); }
  };

  Adapter(const Config& config, const Place& place);
  // x (..., input) -> (..., output)
  Tensor forward(Context& ctx, Tensor x) final;

 protected:
  // The output (N, output), from the input x (N, input) and the output y (N, output) of the adapted layer.
  virtual Tensor adapt(Context& ctx, Tensor x, Tensor y) = 0;
  // The adapted layer's own parameter of this name, or nullptr.
  const Parameter* base_parameter(const std::string& name) const;
  // The path of the adapted layer's weight W (output, input), which merging reads and writes; also if it is stored
  // quantised. Throws Error if the layer has no such weight.
  std::string merged_weight() const;
  // Must be called in the constructor of an adapter that uses the two functions below. Throws Error if there is no W.
  void require_weight();
  // Both have a leading dimension of experts if the layer is below a mixture of experts.
  Tensor squared_row_norms(Context& ctx);      // of W, (output)
  Tensor base_matmul(Context& ctx, Tensor x);  // x (N, input) -> x W^T (N, output)

  Dims dims_;

 private:
  const Parameter& base_weight() const;

  Layer* base_;
  QuantizedWeight* quantized_;  // of base_; nullptr = it stores its weight as it is
  std::int64_t experts_ = 0;    // of the mixture around it; 0 = none
};

// Sums over the last dimension: x (..., D) -> (...).
Tensor row_sums(Tensor x);

}  // namespace meshloom::layers
