// Which experts each token goes to.
#pragma once

#include "layers/core/axes.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// The interface.
class Gating : public Module {
 public:
  struct Dims {
    std::int64_t input = 0, experts = 0;
    std::string input_axis = axis::kEmbed;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "Which experts each token goes to, and with what weights.";
    using Built = Gating;
    using Dims = Gating::Dims;
    Dims dims;
  };
  struct Choice {
    Tensor ids;      // (N, k) i32; outside [0, experts) = dropped, as padding should be (padding.h)
    Tensor weights;  // (N, k): of the experts' outputs in their sum
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
