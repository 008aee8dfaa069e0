// Adafactor (Shazeer and Stern, 2018): for matrices, second moments by row and by column instead of by
// element.
//   b = 1 - step^-decay_power;  s = g^2 + square_eps
//   R' = b R + (1 - b) mean over columns of s;  C' = b C + (1 - b) mean over rows of s
//   u = g / sqrt(R' C' / mean(R'));  p' = p - rate (u / max(1, rms(u) / clip) * size + decay p)
// with size = max(least_size, rms(p)) where relative, else 1. Other parameters keep V' = b V + (1 - b) s, and
// u = g / sqrt(V').
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct Adafactor : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "Adafactor";
    static constexpr std::string_view kAbout =
        "Second moments of a matrix by row and by column instead of by element (Shazeer and Stern, 2018).";
    double decay_power = 0.8;
    double square_eps = 1e-30;  // no eps like that of Adam, which is added to a root
    double clip = 1.0;
    bool relative = true;
    double least_size = 1e-3;
    double weight_decay = 0;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
