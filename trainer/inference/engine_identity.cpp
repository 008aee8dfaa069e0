#include "trainer/inference/engine_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "layers/config/field.h"
#include "trainer/inference/engine.h"

namespace meshloom::trainer {
namespace {

std::string hex(const XXH128_hash_t& hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

std::string hash_of(const std::string& text) { return hex(XXH3_128bits(text.data(), text.size())); }

std::string hash_of(const StoredTensors& weights) {
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : weights.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor* a, const StoredTensor* b) { return a->name < b->name; });
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> bytes;
  for (const StoredTensor* tensor : tensors) {
    const std::string head = fmt::format("{} {} {} {}\n", tensor->name.size(), tensor->name, tensor->dtype,
                                         fmt::join(tensor->shape, "x"));
    XXH3_128bits_update(state.get(), head.data(), head.size());
    bytes.resize(static_cast<std::size_t>(tensor->bytes()));
    weights.read(*tensor, bytes);
    XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  }
  return hex(XXH3_128bits_digest(state.get()));
}

}  // namespace

KVIdentity kv_identity_of(const TrainerConfig& config, const StoredTensors& weights, const Engine& engine,
                          std::string arithmetic) {
  KVIdentity identity;
  identity.weights = hash_of(weights);
  identity.model = hash_of(layers::config_text(*config.model, 0));
  identity.dtype = config.dtype;
  identity.page_size = engine.page_size();
  for (const PageOfCache& cache : engine.page_layout())
    identity.caches += cache.name + " " + kernels::to_string(cache.type) + "\n";
  identity.arithmetic = std::move(arithmetic);
  return identity;
}

}  // namespace meshloom::trainer
