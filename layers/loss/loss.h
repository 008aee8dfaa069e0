// Losses: what training minimises, token by token.
#pragma once

#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class TokenLoss : public Module {
 public:
  struct Dims {};
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "A loss of each token, which training minimises.";
    using Built = TokenLoss;
    using Dims = TokenLoss::Dims;
    Dims dims;
    // Whether rows must hold pairs of answers (preference_loss.h), and what a reference model says of them.
    virtual bool reads_preferences() const { return false; }
    virtual bool reads_reference() const { return false; }
    // Whether the model must have drawn the targets itself (policy_loss.h).
    virtual bool reads_rollouts() const { return false; }
  };
  struct Result {
    Tensor loss;   // (N): 0 for an ignored token
    Tensor valid;  // (N): 1 for a token that counts, 0 for an ignored one
  };

  using Module::Module;
  // logits (N, V); targets (N) i32, where a negative number means an ignored token
  virtual Result forward(Context& ctx, Tensor logits, Tensor targets) = 0;
  // For how many tokens at a time the model is to compute logits and call this loss; 0 = all.
  virtual std::int64_t chunk_size() const { return 0; }
  // What training minimises, made of the losses of all tokens of the batch: these as they are.
  virtual Result combine(Context& /*caller*/, Result tokens) { return tokens; }
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
    static constexpr std::string_view kAbout = "The negative logarithm of the probability of the target.";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  CrossEntropy(const Config&, const Place& place) : TokenLoss(place) {}
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
};

}  // namespace meshloom::layers
