// Models that features are put into: 32 different trees, with different field names, depths and residual
// layouts. Each is a recipe in a file of its own.
#pragma once

#include <string>

#include "layers/attention/attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/causal_lm.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::tests {

constexpr int kHosts = 32;
constexpr double kHostTheta = 10;  // of their rotations: every frequency shows in four positions

// What a host is made of, where a feature may stand instead.
struct Parts {
  layers::Child<layers::Norm::Config> norm = layers::RMSNorm::Config{};
  layers::Child<layers::QueryKeyPosition::Config> positions;
  layers::Child<layers::Layer::Config> query = layers::Linear::Config{};  // and value
  layers::Child<layers::Layer::Config> feed_forward;                      // FeedForward
  layers::Child<layers::KVCache::Config> cache = layers::PagedCache::Config{};
  Parts();
};

// The index-th host made of those parts: a tree built by hand, to hold edited ones against.
trainer::TrainerConfig host(int index, const Parts& parts = {});
// "host_07.recipe"
std::string host_file(int index);
void add_host_classes(layers::ClassTable& classes);

}  // namespace meshloom::tests
