// The interface of everything that maps activations to activations.
#pragma once

#include <cstdint>
#include <string>

#include "layers/core/axes.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class PackedMatrix;

class Layer : public Module {
 public:
  struct Dims {
    std::int64_t input = 0, output = 0;  // sizes of the last dimension
    std::string input_axis = axis::kEmbed, output_axis = axis::kEmbed;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "Whatever maps activations (..., input) to activations (..., output).";
    using Built = Layer;
    using Dims = Layer::Dims;
    Dims dims;
  };
  // For a layer that keeps the size.
  static Dims same(std::int64_t size, const std::string& axis = axis::kEmbed) {
    return {size, size, axis, axis};
  }

  using Module::Module;
  // x (..., input) -> (..., output), in the context of this very call.
  virtual Tensor forward(Context& ctx, Tensor x) = 0;
  // What it multiplies by, where that is kept packed (packed_matrix.h).
  virtual PackedMatrix* packed_matrix() { return nullptr; }
  // Opens that context below the caller's: under the layer's own name, or `as`.
  Tensor operator()(Context& caller, Tensor x, const std::string& as = "") {
    Context ctx = caller.child(as.empty() ? name() : as);
    return forward(ctx, x);
  }

 protected:
  // Throws Error at this layer's path unless x's last dimension is `size`.
  void check_features(const Tensor& x, std::int64_t size) const;
};

}  // namespace meshloom::layers
