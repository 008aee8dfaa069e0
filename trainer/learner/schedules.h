// Schedules other than constant and cosine. All rise linearly over `warmup_steps` (the first update takes
// 1 / warmup_steps), then follow after().
#pragma once

#include <vector>

#include "trainer/learner/schedule.h"

namespace meshloom::trainer {

// The factor of a linear warm-up; 1 from step `warmup_steps` on.
double warmup(std::int64_t step, std::int64_t warmup_steps);

struct WarmupThen : Schedule::Config {
  std::int64_t warmup_steps = 100;

  void fields(layers::FieldVisitor& v) override {
    v("warmup_steps", warmup_steps,
      {"Steps over which the learning rate rises linearly to its peak.", layers::at_least(0),
       layers::means("steps of the rise")});
  }
  double factor(std::int64_t step) const final;
  void check() const override;

 protected:
  // The factor for step >= warmup_steps.
  virtual double after(std::int64_t step) const = 0;
  // Throws Error(CLASS.field, rule, found) unless good.
  void require(bool good, const char* field, const char* rule, double found) const;
};

// The factor is 1 after the warm-up.
struct WarmupConstant : layers::ConfigOf<WarmupConstant, WarmupThen> {
  static constexpr std::string_view kName = "WarmupConstant";
  static constexpr std::string_view kAbout = "A linear warm-up, then the peak rate.";

 protected:
  double after(std::int64_t) const override { return 1; }
};

// final + (1 - final) (1 - done)^power, where `done` goes from 0 to 1 at `total_steps`; final from there on.
// A power of 1 gives a straight line.
struct WarmupPolynomial : layers::ConfigOf<WarmupPolynomial, WarmupThen> {
  static constexpr std::string_view kName = "WarmupPolynomial";
  static constexpr std::string_view kAbout =
      "A linear warm-up, then a power of the remaining fraction of steps.";
  layers::Required<std::int64_t> total_steps;
  double final_fraction = 0;
  double power = 1;

  void fields(layers::FieldVisitor& v) override;
  void check() const override;

 protected:
  double after(std::int64_t step) const override;
};

// sqrt(warmup_steps / step) (Vaswani et al., 2017).
struct WarmupInverseSqrt : layers::ConfigOf<WarmupInverseSqrt, WarmupThen> {
  static constexpr std::string_view kName = "WarmupInverseSqrt";
  static constexpr std::string_view kAbout =
      "A linear warm-up, then sqrt(warmup_steps / step) (Vaswani et al., 2017).";

 protected:
  double after(std::int64_t step) const override;
};

// 1, then a straight line to `final_fraction` over the last `decay_steps` (warm-up, stable, decay: Hu et al.,
// 2024).
struct WarmupStableDecay : layers::ConfigOf<WarmupStableDecay, WarmupThen> {
  static constexpr std::string_view kName = "WarmupStableDecay";
  static constexpr std::string_view kAbout =
      "A linear warm-up, the peak rate, and a straight line down over the last steps (Hu et al., 2024).";
  layers::Required<std::int64_t> total_steps, decay_steps;
  double final_fraction = 0;

  void fields(layers::FieldVisitor& v) override;
  void check() const override;

 protected:
  double after(std::int64_t step) const override;
};

// factors[i] from step boundaries[i - 1] to the step before boundaries[i].
struct WarmupPiecewise : layers::ConfigOf<WarmupPiecewise, WarmupThen> {
  static constexpr std::string_view kName = "WarmupPiecewise";
  static constexpr std::string_view kAbout = "A linear warm-up, then a factor for each range of steps.";
  std::vector<std::int64_t> boundaries;
  std::vector<std::string> factors = {"1"};  // numbers; there is one more than boundaries

  void fields(layers::FieldVisitor& v) override;
  void check() const override;

 protected:
  double after(std::int64_t step) const override;

 private:
  double factor_at(std::size_t index) const;
};

}  // namespace meshloom::trainer
