#include "trainer/inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::trainer {

void check(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    throw Error("temperature", "must be at least 0", std::to_string(options.temperature));
  if (options.top_k < 0) throw Error("top-k", "must be at least 0", std::to_string(options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw Error("top-p", "must be in (0, 1]", std::to_string(options.top_p));
}

std::int32_t sample_token(std::span<const float> logits, const SamplerOptions& options,
                          std::int64_t position) {
  struct Candidate {
    std::int32_t id;
    double weight;  // logit, then probability
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) candidates.push_back({static_cast<std::int32_t>(i), logits[i]});
  if (candidates.empty()) throw Error("sampling", "at least one logit must be finite", "none");
  const auto larger = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  if (options.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), larger)->id;
  std::sort(candidates.begin(), candidates.end(), larger);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < candidates.size())
    candidates.resize(static_cast<std::size_t>(options.top_k));
  const double largest = candidates.front().weight;
  double sum = 0;
  for (Candidate& c : candidates) sum += c.weight = std::exp((c.weight - largest) / options.temperature);
  if (options.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates.size() && kept < options.top_p * sum) kept += candidates[count++].weight;
    candidates.resize(std::max<std::size_t>(count, 1));
    sum = kept;
  }
  const double draw =
      static_cast<double>(kernels::mix(options.seed, static_cast<std::uint64_t>(position)) >> 11) * 0x1p-53 *
      sum;
  double at = 0;
  for (const Candidate& c : candidates)
    if ((at += c.weight) > draw) return c.id;
  return candidates.back().id;
}

}  // namespace meshloom::trainer
