// Cross-entropy with two regularising terms: label smoothing and z-loss.
#pragma once

#include "layers/loss/loss.h"

namespace meshloom::layers {

//   (1 - s) CE + s mean over v of (lse - logits[v]) + z lse^2,   lse = log sum exp(logits)
// s is the label smoothing (Szegedy et al., 2016), with which the target has the probability 1 - s + s / V; z is the
// factor of the z-loss (Chowdhery et al., 2022). Outside training it is plain cross-entropy.
class RegularizedCrossEntropy : public TokenLoss {
 public:
  struct Config : ConfigOf<Config, TokenLoss::Config> {
    static constexpr std::string_view kName = "RegularizedCrossEntropy";
    static constexpr std::string_view kAbout =
        "Cross-entropy with label smoothing and a z-loss (Szegedy et al., 2016; Chowdhery et al., 2022).";
    double label_smoothing = 0;
    double z_loss = 0;

    void fields(FieldVisitor& v) override {
      v("label_smoothing", label_smoothing,
        {"The part of the target's probability that is spread evenly over all tokens.", below_one()});
      v("z_loss", z_loss,
        {"Factor on the squared log-sum-exp of the logits, which is added to the loss.", at_least(0)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RegularizedCrossEntropy(const Config& config, const Place& place);
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;

 private:
  double smoothing_, z_;
};

}  // namespace meshloom::layers
