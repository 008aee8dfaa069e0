// What is put around a trained layer to change it by few new parameters. The layer inside is frozen and keeps
// its place: its parameters have the paths they have without the adapter, so that checkpoints fit both ways.
#pragma once

#include <memory>
#include <string>

#include "layers/adapters/merge.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"
#include "layers/core/packed_matrix.h"

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
  // The path of its (output, input) matrix W, also where it is packed: what a fold of it reads and gives.
  // Throws Error where it has none.
  std::string folded_weight() const;
  // Of an adapter that asks for the two below, in its constructor. Throws Error where there is no W.
  void use_matrix();
  // Below experts with these in front.
  Tensor squared_lengths(Context& ctx);  // of W's rows, (output)
  Tensor times(Context& ctx, Tensor x);  // x (N, input) -> x W^T (N, output)

  Dims dims_;

 private:
  const Parameter& base_weight() const;

  Layer* base_;
  PackedMatrix* packed_;      // base_, where it is one
  std::int64_t experts_ = 0;  // that it stands below; 0 = none
};

// x (..., D) -> (...).
Tensor row_sums(Tensor x);

}  // namespace meshloom::layers
