// Scores of experts from the logits of a router, token by token. A score is both a config and a pure function.
#pragma once

#include "kernels/program/builder.h"
#include "layers/config/config.h"

namespace meshloom::layers {

struct Score : Config {
  static constexpr std::string_view kAbout = "A function from the logits of a router (N, experts) to scores.";
  // logits (N, E) -> scores (N, E) above 0
  virtual kernels::Tensor scores(kernels::Tensor logits) const = 0;
  // Logarithms of the scores, up to a constant per token. They do not underflow, so that the largest can be told apart.
  virtual kernels::Tensor log_scores(kernels::Tensor logits) const = 0;
  void fields(FieldVisitor&) override {}
};

struct SoftmaxScore : ConfigOf<SoftmaxScore, Score> {
  static constexpr std::string_view kName = "SoftmaxScore";
  static constexpr std::string_view kAbout = "The softmax over all experts.";
  kernels::Tensor scores(kernels::Tensor logits) const override;
  kernels::Tensor log_scores(kernels::Tensor logits) const override;
};

// The sigmoid of each logit by itself (DeepSeek-V3, 2024).
struct SigmoidScore : ConfigOf<SigmoidScore, Score> {
  static constexpr std::string_view kName = "SigmoidScore";
  static constexpr std::string_view kAbout = "The sigmoid of each logit by itself (DeepSeek-V3, 2024).";
  kernels::Tensor scores(kernels::Tensor logits) const override;
  kernels::Tensor log_scores(kernels::Tensor logits) const override;
};

}  // namespace meshloom::layers
