// The interface of modules that map activations to activations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "layers/core/axes.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class QuantizedWeight;

// What y = x W^T + b is computed with.
struct LinearParameters {
  const Parameter* weight =
      nullptr;  // W (output, input); nullptr = the layer is another map, or stores it in another form
  const Parameter* bias = nullptr;  // b (output); nullptr = none
};

class Layer : public Module {
 public:
  struct Dims {
    std::int64_t input = 0, output = 0;  // sizes of the last dimension
    std::string input_axis = axis::kEmbed, output_axis = axis::kEmbed;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "A map from activations (..., input) to activations (..., output).";
    using Built = Layer;
    using Dims = Layer::Dims;
    Dims dims;
  };
  // The dimensions of a layer whose output has the size of its input.
  static Dims same(std::int64_t size, const std::string& axis = axis::kEmbed) {
    return {size, size, axis, axis};
  }

  using Module::Module;
  // x (..., input) -> (..., output). `ctx` is the context of this call itself.
  virtual Tensor forward(Context& ctx, Tensor x) = 0;
  // The layer's weight if it is stored quantised (quantized_weight.h), else nullptr.
  virtual QuantizedWeight* quantized_weight() { return nullptr; }
  // For a parent that computes with the layer's matrix in another way.
  virtual LinearParameters linear_parameters() const { return {}; }
  // Calls forward() in a context below the caller's, named after the layer or `as`.
  Tensor operator()(Context& caller, Tensor x, const std::string& as = "") {
    Context ctx = caller.child(as.empty() ? name() : as);
    return forward(ctx, x);
  }

 protected:
  // Throws Error, at this layer's path, unless the last dimension of x is `size`.
  void check_features(const Tensor& x, std::int64_t size) const;
  // x (..., input) -> (..., output) by `product`, which maps rows (N, input) to (N, output). Marks its result as that of the call.
  Tensor map_rows(Context& ctx, Tensor x, const Dims& dims,
                  const std::function<Tensor(Tensor rows)>& product) const;
};

}  // namespace meshloom::layers
