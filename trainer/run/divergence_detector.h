// Whether a run still learns, judged by its losses alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// The rule. A step is bad
//   when its loss is not finite, or
//   when its loss lies more than max(2, lowest) nats per token above `lowest`, the lowest median that kWindow good steps in
//   a row of each other have had so far, or
//   when its update was skipped because its gradient was not finite (with a scaled loss: once the scale is down to 1, for
//   skipping is how it finds its scale).
// kBadSteps bad steps in a row: the run has diverged. The loss of step n is that of the parameters after step n - 1: the
// checkpoints from the one before the first bad step on are then unhealthy. Bad losses never enter the median.
class DivergenceDetector {
 public:
  static constexpr std::size_t kWindow = 20;
  static constexpr std::int64_t kBadSteps = 3;

  // What a checkpoint keeps of it.
  struct State {
    std::vector<double> losses;    // the last good ones, at most kWindow
    std::optional<double> lowest;  // median
    std::int64_t bad = 0;          // steps in a row
    bool operator==(const State&) const = default;
  };

  // At step `step`.
  DivergenceDetector(std::int64_t step, State state) : step_(step), state_(std::move(state)) {}

  struct Observed {
    double loss = 0;
    bool skipped = false;              // by a gradient that was not finite
    std::optional<double> loss_scale;  // of the step
  };
  // Of the step after the last one.
  void add(const Observed& step);
  // One without a token to learn says nothing.
  void add_empty() { ++step_; }

  bool diverged() const { return state_.bad >= kBadSteps; }
  bool bad() const { return state_.bad > 0; }
  // The last step after which the parameters have not been seen to be bad: those of a later one gave bad losses.
  std::int64_t last_good() const { return step_ - state_.bad - (state_.bad > 0 ? 1 : 0); }
  // The last step after which the parameters have given a good loss.
  std::int64_t last_proven() const { return step_ - state_.bad - 1; }
  // Of the last step, where it is bad: "the loss is 880.1 after a lowest median of 1.3".
  const std::string& reason() const { return reason_; }
  const State& state() const { return state_; }

 private:
  std::int64_t step_ = 0;
  State state_;
  std::string reason_;
};

}  // namespace meshloom::trainer
