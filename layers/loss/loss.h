// What training minimises, token by token.
#pragma once

#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// The interface.
class TokenLoss : public Module {
 public:
  struct Dims {};
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "What training minimises, token by token.";
    using Built = TokenLoss;
    using Dims = TokenLoss::Dims;
    Dims dims;
  };
  struct Result {
    Tensor loss, valid;  // (N): per token, 0 where ignored; 1 or 0
  };

  using Module::Module;
  // logits (N, V), targets (N) i32, negative = ignored
  virtual Result forward(Context& ctx, Tensor logits, Tensor targets) = 0;
  // How many tokens it wants the scores of at once; 0 = all.
  virtual std::int64_t rows() const { return 0; }
  Result operator()(Context& caller, Tensor logits, Tensor targets) {
    Context ctx = caller.child(name());
    return forward(ctx, logits, targets);
  }
};

// -log softmax(logits)[target]
class CrossEntropy : public TokenLoss {
 public:
  struct Config : ConfigOf<Config, TokenLoss::Config> {
    static constexpr std::string_view kName = "CrossEntropy";
    static constexpr std::string_view kAbout = "The negative logarithm of the target's probability.";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  CrossEntropy(const Config&, const Place& place) : TokenLoss(place) {}
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
};

}  // namespace meshloom::layers
