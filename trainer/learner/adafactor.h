// Adafactor (Shazeer and Stern, 2018): for matrices, second moments by row and by column instead of by
// element.
//   b = 1 - step^-decay_power;  s = g^2 + square_eps
//   R' = b R + (1 - b) mean over columns of s;  C' = b C + (1 - b) mean over rows of s
//   u = g / sqrt(R' C' / mean(R'));  p' = p - rate (u / max(1, rms(u) / clip_threshold) * size + decay p)
// with size = max(min_scale, rms(p)) if scale_parameter, else 1. Parameters that are no matrices keep
// V' = b V + (1 - b) s and use u = g / sqrt(V').
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct Adafactor : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "Adafactor";
    static constexpr std::string_view kAbout =
        "Second moments of a matrix by row and by column instead of by element (Shazeer and Stern, 2018).";
    double decay_power = 0.8;
    double square_eps = 1e-30;  // unlike the eps of Adam, which is added to a root
    double clip_threshold = 1.0;
    bool scale_parameter = true;
    double min_scale = 1e-3;
    double weight_decay = 0;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
