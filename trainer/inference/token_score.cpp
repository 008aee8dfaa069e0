#include "trainer/inference/token_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace meshloom::trainer {

TokenScore token_score(std::span<const float> logits, std::int32_t id, int top) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float largest = -kInfinity;
  for (const float logit : logits)
    if (std::isfinite(logit)) largest = std::max(largest, logit);
  double sum = 0;
  for (const float logit : logits)
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](float logit) {
    return std::isfinite(logit) ? static_cast<float>(logit - log_sum) : -kInfinity;
  };
  TokenScore score{id, logprob(logits[static_cast<std::size_t>(id)]), {}};
  if (top <= 0) return score;
  // The best so far as a heap whose front is the worst of them.
  const auto before = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  std::vector<std::pair<std::int32_t, float>>& best = score.top;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    const std::pair<std::int32_t, float> next(static_cast<std::int32_t>(i), logits[i]);
    if (best.size() == static_cast<std::size_t>(top)) {
      if (!before(next, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), before);
      best.pop_back();
    }
    best.push_back(next);
    std::push_heap(best.begin(), best.end(), before);
  }
  std::sort_heap(best.begin(), best.end(), before);
  for (auto& [token, value] : best) value = logprob(value);
  return score;
}

}  // namespace meshloom::trainer
