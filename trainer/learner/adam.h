// Adam with other kinds of weight decay.
#pragma once

#include "trainer/learner/adamw.h"

namespace meshloom::trainer {

// Adam (Kingma and Ba, 2015) with an L2 penalty: the decay is part of the gradient, g' = g + decay p.
struct Adam : AdamW {
  struct Config : layers::ConfigOf<Config, AdamW::Config> {
    static constexpr std::string_view kName = "Adam";
    static constexpr std::string_view kAbout =
        "Adam with weight decay in the gradient (Kingma and Ba, 2015).";
    Config() { weight_decay = 0; }
    std::vector<kernels::Tensor> update(const Update& update) const override;

   protected:
    layers::About decay_about() const override;
  };
};

// AdamW whose decay follows the schedule but not the learning rate: p' = p - factor (peak_learning_rate u +
// decay p), as its paper writes it.
struct AdamWIndependent : AdamW {
  struct Config : layers::ConfigOf<Config, AdamW::Config> {
    static constexpr std::string_view kName = "AdamWIndependent";
    static constexpr std::string_view kAbout =
        "Adam with decoupled weight decay that does not depend on the learning rate (Loshchilov and Hutter, "
        "2019).";
    Config() { weight_decay = 1e-4; }
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;

   protected:
    layers::About decay_about() const override;
  };
};

}  // namespace meshloom::trainer
