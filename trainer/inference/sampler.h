// Samples a token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace meshloom::trainer {

struct SamplerOptions {
  double temperature = 0.8;  // 0 = the largest logit
  std::int64_t top_k = 0;    // keep the k largest; 0 = all
  double top_p = 1.0;        // keep the most probable until their sum reaches p
  std::uint64_t seed = 0;
};

// Throws Error on invalid values.
void check(const SamplerOptions& options);
// The random number depends on (seed, position) only, so that the same prompt gives the same text on every
// run. Logits that are not finite are never sampled; throws Error when none is finite. Ties go to the lower
// id.
std::int32_t sample_token(std::span<const float> logits, const SamplerOptions& options,
                          std::int64_t position);

}  // namespace meshloom::trainer
