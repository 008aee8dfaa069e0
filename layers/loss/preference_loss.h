// Losses of pairs of answers to one prompt, of which people prefer the first: preference tuning.
#pragma once

#include "kernels/elementwise/expr.h"
#include "layers/loss/loss.h"

namespace meshloom::layers {

// Call information: rows hold pairs, each of which is two documents.
struct Preferences {
  // (B, S) f32: p where the target is of the chosen answer of the row's pair p, from 1, -p of its rejected answer, 0 of no answer
  Tensor answers;
  // (B, S) f32: log-probabilities of the answers' targets under the reference model, of which only the sum over an answer counts;
  // an empty tensor if the loss does not read it
  Tensor reference;
  std::int64_t pairs = 1;  // of a row, at most
};

// A loss of each pair, made of the log-probabilities of its answers: sums over the targets of each.
class PreferenceLoss : public TokenLoss {
 public:
  struct Config : TokenLoss::Config {
    bool reads_preferences() const override { return true; }
  };

  using TokenLoss::TokenLoss;
  // The cross-entropy of each token, of which combine() makes the losses of pairs.
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
  // Returns the losses of pairs (pairs * B), 0 where a row has fewer. While training it reports accuracy, the part of the pairs whose
  // chosen answer has the larger reward, and margin, the mean difference of the rewards, in its own context "preference".
  Result combine(Context& caller, Result tokens) override;

 protected:
  // Of one answer: the log-probability, without that under the reference model if there is one, and the number of its targets.
  struct Answer {
    kernels::Expr logprob, length;
  };
  virtual kernels::Expr reward(const Answer& answer) const = 0;
  // `margin` is the reward of the chosen answer less that of the rejected one.
  virtual kernels::Expr pair_loss(const kernels::Expr& margin) const = 0;

 private:
  // Of all pairs (pairs * B): the log-probabilities of the chosen and of the rejected answers, and the numbers of their targets.
  static std::vector<Tensor> sums_of(const Preferences& preferences, const Result& tokens);
};

// Direct preference optimization (Rafailov et al., 2023):
//   -(1 - s) log sigmoid(m) - s log sigmoid(-m),   m = beta ((c - c_ref) - (r - r_ref))
// c and r are the log-probabilities of the chosen and the rejected answer, c_ref and r_ref those under the reference model;
// s is the label smoothing, the part of the pairs that are taken to be the wrong way round (Mitchell, 2023).
class DPOLoss : public PreferenceLoss {
 public:
  struct Config : ConfigOf<Config, PreferenceLoss::Config> {
    static constexpr std::string_view kName = "DPOLoss";
    static constexpr std::string_view kAbout =
        "Direct preference optimization of pairs of answers, beside a reference model (Rafailov et al., "
        "2023).";
    double beta = 0.1, label_smoothing = 0;

    void fields(FieldVisitor& v) override;
    bool reads_reference() const override { return true; }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  DPOLoss(const Config& config, const Place& place);

 protected:
  kernels::Expr reward(const Answer& answer) const override;
  kernels::Expr pair_loss(const kernels::Expr& margin) const override;

 private:
  double beta_, smoothing_;
};

// Simple preference optimization (Meng et al., 2024), which needs no reference model:
//   -log sigmoid(beta (c / |c| - r / |r|) - gamma)
// |c| and |r| are the numbers of tokens of the answers.
class SimPOLoss : public PreferenceLoss {
 public:
  struct Config : ConfigOf<Config, PreferenceLoss::Config> {
    static constexpr std::string_view kName = "SimPOLoss";
    static constexpr std::string_view kAbout =
        "Simple preference optimization of pairs of answers, without a reference model (Meng et al., 2024).";
    double beta = 2, gamma = 0.5;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SimPOLoss(const Config& config, const Place& place);

 protected:
  kernels::Expr reward(const Answer& answer) const override;
  kernels::Expr pair_loss(const kernels::Expr& margin) const override;

 private:
  double beta_, gamma_;
};

}  // namespace meshloom::layers
