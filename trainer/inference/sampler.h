// Samples a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// In this order: logit_bias, the penalties, which tokens are allowed, temperature, top_k, top_p, min_p, as in transformers and vLLM.
struct SamplerOptions {
  double temperature = 0.8;  // 0 = the largest logit
  std::int64_t top_k = 0;    // keep the k largest; 0 = all
  double top_p = 1.0;        // keep the most probable until their sum reaches p
  double min_p = 0;          // keep those of at least this share of the largest probability
  // Of tokens that stand in the prompt or in what was generated: positive logits are divided by it, negative ones multiplied
  // (Keskar et al., 2019).
  double repetition_penalty = 1;
  // Of tokens that stand in what was generated: subtracted once, and for each time.
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<std::int32_t, double>> logit_bias;  // added to the logit of each id
  std::uint64_t seed = 0;
};

// The tokens in front of the one that is drawn, which penalties look at. Ids that the logits do not have are ignored.
struct TokensSoFar {
  std::span<const std::int32_t> prompt, generated;
};

// Throws Error on invalid values. Whether the model has the ids of logit_bias is the caller's to check.
void check(const SamplerOptions& options);
// The random number depends on (seed, position) only, so that the same prompt gives the same text on every
// run. Logits that are not finite are never sampled; throws Error when none is finite. Ties go to the lower
// id. `allowed` has a bit for each token, in words of 64, and those past its end are not; empty = all are.
std::int32_t sample_token(std::span<const float> logits, const SamplerOptions& options, std::int64_t position,
                          const TokensSoFar& so_far = {}, std::span<const std::uint64_t> allowed = {});

}  // namespace meshloom::trainer
