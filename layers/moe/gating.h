// The interface of gatings, which choose the experts of each token.
#pragma once

#include "layers/core/axes.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class Gating : public Module {
 public:
  struct Dims {
    std::int64_t input = 0, experts = 0;
    std::string input_axis = axis::kEmbed;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "Chooses the experts of each token, and their weights.";
    using Built = Gating;
    using Dims = Gating::Dims;
    Dims dims;
  };
  struct Choice {
    Tensor
        ids;  // (N, k) i32: the experts; outside [0, experts) = none, as for padding (token_mask in attention/mask.h)
    Tensor weights;  // (N, k): the weights of the experts' outputs in their sum
  };

  using Module::Module;
  // x (N, input)
  virtual Choice forward(Context& ctx, Tensor x) = 0;
  Choice operator()(Context& caller, Tensor x) {
    Context ctx = caller.child(name());
    return forward(ctx, x);
  }
};

}  // namespace meshloom::layers
