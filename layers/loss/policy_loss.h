// Losses of answers that the model itself wrote and that a reward judges: reinforcement learning.
#pragma once

#include "layers/loss/loss.h"

namespace meshloom::layers {

// Call information: what is known of the targets that the model has drawn.
struct Rollouts {
  // Both (B, S) f32, and anything where the target is ignored: by how much the reward of the answer that the target is of is better than one
  // could expect, and the target's log-probability under the parameters that drew it.
  Tensor advantages, old_logprobs;
};

// Group relative policy optimization (Shao et al., 2024), as the mean over all tokens (Yu et al., DAPO, 2025) and without a reference
// model:
//   -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A),   r = exp(logprob - old_logprob)
// A is the advantage. Where the parameters are those that drew the tokens, r is 1 up to rounding, and the gradient is that of
// -A logprob. While training it reports clip_fraction, the part of the tokens whose r is clipped, and approx_kl, the mean of r - 1 - log r,
// which estimates the divergence of the parameters from those that drew the tokens (Schulman, 2020), in its own context "policy".
class GRPOLoss : public TokenLoss {
 public:
  struct Config : ConfigOf<Config, TokenLoss::Config> {
    static constexpr std::string_view kName = "GRPOLoss";
    static constexpr std::string_view kAbout =
        "Group relative policy optimization of answers that the model writes (Shao et al., 2024).";
    double clip_low = 0.2, clip_high = 0.2;

    void fields(FieldVisitor& v) override;
    bool reads_rollouts() const override { return true; }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  GRPOLoss(const Config& config, const Place& place);
  // The cross-entropy of each token, of which combine() makes the loss.
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
  Result combine(Context& caller, Result tokens) override;

 private:
  double clip_low_, clip_high_;
};

}  // namespace meshloom::layers
