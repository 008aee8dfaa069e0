// What makes scores of a router's logits, token by token. A score is a config and a pure function at once.
#pragma once

#include "kernels/program/builder.h"
#include "layers/config/config.h"

namespace meshloom::layers {

struct Score : Config {
  static constexpr std::string_view kAbout = "What makes scores of a router's logits (N, experts).";
  // logits (N, E) -> scores (N, E) above 0
  virtual kernels::Tensor scores(kernels::Tensor logits) const = 0;
  // Their logarithms, up to a number per token: no underflow, so that the largest stay apart.
  virtual kernels::Tensor log_scores(kernels::Tensor logits) const = 0;
  void fields(FieldVisitor&) override {}
};

struct SoftmaxScore : ConfigOf<SoftmaxScore, Score> {
  static constexpr std::string_view kName = "SoftmaxScore";
  static constexpr std::string_view kAbout = "The softmax over all experts.";
  kernels::Tensor scores(kernels::Tensor logits) const override;
  kernels::Tensor log_scores(kernels::Tensor logits) const override;
};

// Each expert on its own (DeepSeek-V3, 2024).
struct SigmoidScore : ConfigOf<SigmoidScore, Score> {
  static constexpr std::string_view kName = "SigmoidScore";
  static constexpr std::string_view kAbout = "The sigmoid of each expert by itself (DeepSeek-V3, 2024).";
  kernels::Tensor scores(kernels::Tensor logits) const override;
  kernels::Tensor log_scores(kernels::Tensor logits) const override;
};

}  // namespace meshloom::layers
