#include "trainer/run/state/divergence_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace meshloom::trainer {
namespace {

constexpr double kMinRise = 2;  // nats per token

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void DivergenceDetector::add(const Observed& step) {
  ++step_;
  reason_.clear();
  if (!std::isfinite(step.loss))
    reason_ = fmt::format("the loss of step {} is not finite", step_);
  else if (step.skipped && step.loss_scale.value_or(1) <= 1)
    reason_ = fmt::format("the gradient of step {} is not finite", step_);
  else if (state_.lowest && step.loss > *state_.lowest + std::max(kMinRise, *state_.lowest))
    reason_ = fmt::format("the loss of step {} is {:.4g}; the lowest median so far is {:.4g}", step_,
                          step.loss, *state_.lowest);
  if (!reason_.empty()) {
    ++state_.bad;
    return;
  }
  state_.bad = 0;
  state_.losses.push_back(step.loss);
  if (state_.losses.size() > kWindow) state_.losses.erase(state_.losses.begin());
  if (state_.losses.size() < kWindow) return;
  const double now = median(state_.losses);
  if (!state_.lowest || now < *state_.lowest) state_.lowest = now;
}

}  // namespace meshloom::trainer
