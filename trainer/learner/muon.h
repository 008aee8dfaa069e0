// Muon (Jordan et al., 2024): the momentum of a matrix, made nearly orthogonal by five steps of a
// Newton-Schulz iteration, X <- a X + (b A + c A A) X with A = X X^T. The step is scaled by 0.2
// sqrt(max(rows, columns)), which gives it the size of an AdamW step (Liu et al., 2025). So one learning rate
// serves both: AdamW updates the parameters that are no matrices, and the matrices over the vocabulary. Every
// expert's weights are a matrix of their own.
#pragma once

#include "trainer/learner/adamw.h"

namespace meshloom::trainer {

struct Muon : AdamW {
  struct Config : layers::ConfigOf<Config, AdamW::Config> {
    static constexpr std::string_view kName = "Muon";
    static constexpr std::string_view kAbout =
        "Orthogonalized momentum for matrices, AdamW for all other parameters (Jordan et al., "
        "2024).";
    double momentum = 0.95;
    bool nesterov = true;
    std::int64_t iterations = 5;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
