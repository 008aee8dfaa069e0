// Detects from its losses alone that a run has diverged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// A step is bad
//   when its loss is not finite, or
//   when its loss is more than max(2, lowest) nats per token above `lowest`, the lowest median that any kWindow successive
//   good steps have had so far, or
//   when its update was skipped because its gradient was not finite. (With a scaled loss this counts once the scale is down
//   to 1: skipping steps is how a loss scale is found.)
// After kBadSteps bad steps in a row the run has diverged. The loss of step n is computed from the parameters
// after step n - 1, so the checkpoints from the one before the first bad step on are unhealthy. Bad losses
// never enter the median.
class DivergenceDetector {
 public:
  static constexpr std::size_t kWindow = 20;
  static constexpr std::int64_t kBadSteps = 3;

  // What a checkpoint stores of it.
  struct State {
    std::vector<double> losses;    // of the last good steps, at most kWindow of them
    std::optional<double> lowest;  // the lowest median so far
    std::int64_t bad = 0;          // bad steps in a row
    bool operator==(const State&) const = default;
  };

  // Begins after step `step`.
  DivergenceDetector(std::int64_t step, State state) : step_(step), state_(std::move(state)) {}

  struct Observed {
    double loss = 0;
    bool skipped = false;              // the gradient was not finite
    std::optional<double> loss_scale;  // where the loss is scaled
  };
  // Adds the next step.
  void add(const Observed& step);
  // Adds a step without a target, which says nothing about the run.
  void add_empty() { ++step_; }

  bool diverged() const { return state_.bad >= kBadSteps; }
  bool bad() const { return state_.bad > 0; }
  // The last step whose parameters have given no bad loss.
  std::int64_t last_good() const { return step_ - state_.bad - (state_.bad > 0 ? 1 : 0); }
  // The last step whose parameters have given a good loss.
  std::int64_t last_verified() const { return step_ - state_.bad - 1; }
  // Why the last step is bad, "" where it is not: "the loss of step 9 is 880.1; the lowest median so far is
  // 1.3".
  const std::string& reason() const { return reason_; }
  const State& state() const { return state_; }

 private:
  std::int64_t step_ = 0;
  State state_;
  std::string reason_;
};

}  // namespace meshloom::trainer
