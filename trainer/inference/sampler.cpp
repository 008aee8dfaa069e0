#include "trainer/inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::trainer {
namespace {

struct TokenLogit {
  std::int32_t id;
  double logit;
};

bool more_likely(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Candidates by falling logit, of which only as many are sorted as are looked at: mostly few of a large vocabulary.
class FallingLogits {
 public:
  explicit FallingLogits(std::vector<TokenLogit> candidates) : all_(std::move(candidates)) {}

  std::size_t size() const { return all_.size(); }
  const std::vector<TokenLogit>& any_order() const { return all_; }
  const TokenLogit& at(std::size_t index) {
    if (index >= sorted_) sort(std::max(index + 1, std::max(kFirst, sorted_ * 4)));
    return all_[index];
  }
  // Keeps the `count` largest.
  void keep(std::size_t count) {
    if (count >= all_.size()) return;
    if (count > sorted_) sort(count);
    all_.resize(count);
    sorted_ = std::min(sorted_, count);
  }

 private:
  static constexpr std::size_t kFirst = 64;

  void sort(std::size_t count) {
    const auto from = all_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    sorted_ = std::min(count, all_.size());
    const auto to = all_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    if (to != all_.end()) std::nth_element(from, to, all_.end(), more_likely);
    std::sort(from, to, more_likely);
  }

  std::vector<TokenLogit> all_;
  std::size_t sorted_ = 0;  // how many at the beginning are in their places
};

// The finite logits, by rising id.
std::vector<TokenLogit> finite_logits(std::span<const float> logits) {
  std::vector<TokenLogit> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) candidates.push_back({static_cast<std::int32_t>(i), logits[i]});
  if (candidates.empty()) throw Error("sampling", "at least one logit must be finite", "none");
  return candidates;
}

void penalize(std::vector<TokenLogit>& candidates, const SamplerOptions& options, const TokensSoFar& so_far) {
  const auto change = [&](std::int32_t id, const auto& edit) {
    const auto found =
        std::lower_bound(candidates.begin(), candidates.end(), id,
                         [](const TokenLogit& c, std::int32_t wanted) { return c.id < wanted; });
    if (found != candidates.end() && found->id == id) edit(found->logit);
  };
  for (const auto& [id, bias] : options.logit_bias) change(id, [&](double& logit) { logit += bias; });
  const bool repetition = options.repetition_penalty != 1;
  if (!repetition && options.presence_penalty == 0 && options.frequency_penalty == 0) return;
  std::unordered_map<std::int32_t, std::int64_t> times;  // in what was generated
  for (const std::int32_t id : so_far.generated) ++times[id];
  if (repetition)
    for (const std::int32_t id : so_far.prompt) times.try_emplace(id, 0);
  for (const auto& [id, count] : times)
    change(id, [&](double& logit) {
      if (repetition)
        logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
      if (count > 0)
        logit -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count);
    });
}

void require_in_range(const char* where, double value, double low, double high, const char* rule) {
  if (!(value >= low && value <= high)) throw Error(where, rule, std::to_string(value));
}

}  // namespace

void check(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    throw Error("temperature", "must be at least 0", std::to_string(options.temperature));
  if (options.top_k < 0) throw Error("top-k", "must be at least 0", std::to_string(options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw Error("top-p", "must be in (0, 1]", std::to_string(options.top_p));
  require_in_range("min-p", options.min_p, 0, 1, "must be in [0, 1]");
  if (!(options.repetition_penalty > 0) || !std::isfinite(options.repetition_penalty))
    throw Error("repetition-penalty", "must be above 0", std::to_string(options.repetition_penalty));
  require_in_range("presence-penalty", options.presence_penalty, -2, 2, "must be in [-2, 2]");
  require_in_range("frequency-penalty", options.frequency_penalty, -2, 2, "must be in [-2, 2]");
  for (const auto& [id, bias] : options.logit_bias)
    if (id < 0 || !std::isfinite(bias))
      throw Error("logit-bias", "must be finite numbers of token ids",
                  std::to_string(bias) + " of id " + std::to_string(id));
}

std::int32_t sample_token(std::span<const float> logits, const SamplerOptions& options, std::int64_t position,
                          const TokensSoFar& so_far) {
  std::vector<TokenLogit> candidates = finite_logits(logits);
  penalize(candidates, options, so_far);
  const TokenLogit best = *std::min_element(candidates.begin(), candidates.end(), more_likely);
  if (options.temperature == 0) return best.id;
  FallingLogits falling(std::move(candidates));
  const auto weight = [&](const TokenLogit& c) {
    return std::exp((c.logit - best.logit) / options.temperature);
  };
  double sum = 0;
  if (options.top_k > 0) {
    falling.keep(static_cast<std::size_t>(options.top_k));
    for (std::size_t i = 0; i < falling.size(); ++i) sum += weight(falling.at(i));
  } else if (options.top_p < 1 || options.min_p == 0) {
    for (const TokenLogit& c : falling.any_order()) sum += weight(c);
  }
  // Both keep the largest: what is kept is a beginning.
  if (options.top_p < 1 || options.min_p > 0) {
    const double enough = options.top_p < 1 ? options.top_p * sum : std::numeric_limits<double>::infinity();
    double kept = 0;
    std::size_t count = 0;
    for (; count < falling.size() && kept < enough; ++count) {
      const double next = weight(falling.at(count));
      if (count > 0 && next < options.min_p) break;  // the first weighs 1
      kept += next;
    }
    falling.keep(std::max<std::size_t>(count, 1));
    sum = kept;
  }
  const double draw =
      static_cast<double>(kernels::mix(options.seed, static_cast<std::uint64_t>(position)) >> 11) * 0x1p-53 *
      sum;
  double at = 0;
  for (std::size_t i = 0; i < falling.size(); ++i) {
    const TokenLogit& c = falling.at(i);
    if ((at += weight(c)) > draw) return c.id;
  }
  return falling.at(falling.size() - 1).id;
}

}  // namespace meshloom::trainer
