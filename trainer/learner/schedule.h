// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "layers/config/config.h"

namespace meshloom::trainer {

struct Schedule {
  struct Config : layers::Config {
    static constexpr std::string_view kAbout = "The learning rate of each step, as a factor on its peak.";
    // The factor on the peak rate for update `step`, counted from 1.
    virtual double factor(std::int64_t step) const = 0;
    // Throws Error on invalid values.
    virtual void check() const = 0;
  };
};

// Adds the fields that say where a falling schedule ends.
void add_end_fields(layers::FieldVisitor& v, layers::Required<std::int64_t>& total_steps,
                    double& final_fraction);

// The factor is 1 at every step.
struct ConstantSchedule : Schedule {
  struct Config : layers::ConfigOf<Config, Schedule::Config> {
    static constexpr std::string_view kName = "ConstantSchedule";
    static constexpr std::string_view kAbout = "The peak rate at every step.";
    void fields(layers::FieldVisitor&) override {}
    double factor(std::int64_t) const override { return 1.0; }
    void check() const override {}
  };
};

// Rises linearly over `warmup_steps` (the first update takes 1/warmup_steps), then falls as half a cosine to
// `final_fraction` at `total_steps` (Loshchilov and Hutter, 2017), and stays there.
struct WarmupCosine : Schedule {
  struct Config : layers::ConfigOf<Config, Schedule::Config> {
    static constexpr std::string_view kName = "WarmupCosine";
    static constexpr std::string_view kAbout =
        "A linear warm-up, then half a cosine (Loshchilov and Hutter, 2017).";
    std::int64_t warmup_steps = 100;
    layers::Required<std::int64_t> total_steps;
    double final_fraction = 0.1;

    void fields(layers::FieldVisitor& v) override;
    double factor(std::int64_t step) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
