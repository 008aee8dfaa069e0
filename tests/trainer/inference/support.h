// Shared by the tests of inference: a tiny model with random parameters, and what hears of requests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/inference/engine.h"

namespace meshloom::tests {

const hal::Registry& inference_registry();
const kernels::Catalog& inference_catalog();
// The initial parameters, larger than they are for training, so that tokens differ much in probability. Those of the embedding of token
// `poisoned` are no numbers.
trainer::StoredTensors random_weights(const trainer::TrainerConfig& config, std::int32_t poisoned = -1,
                                      std::uint64_t seed = 5);

// These values of each parameter.
trainer::StoredTensors stored_weights(
    const trainer::TrainerConfig& config,
    const std::function<void(const layers::ParameterInfo&, std::vector<float>&)>& values);

// The recipe `tiny` with random parameters, on a device that checks every rule.
class TinyModel {
 public:
  explicit TinyModel(const std::string& device = "cpu");

  trainer::Engine engine(const trainer::EngineOptions& options,
                         std::unique_ptr<trainer::Speculator> speculator = nullptr) {
    return {config, options, *device, inference_catalog(), weights, std::move(speculator)};
  }

  // Other random parameters.
  void initialize(std::uint64_t seed);
  // Makes the embedding of a token no number, in engines from now on.
  void poison(std::int32_t token);

  trainer::TrainerConfig config;
  trainer::StoredTensors weights;
  std::unique_ptr<hal::Device> device;
};

// What became of a request. Safe from any thread.
class RecordedEvents : public trainer::RequestEvents {
 public:
  // Called with each token; false ends the request.
  std::function<bool(std::int32_t)> each;

  void on_prompt(std::span<const trainer::TokenScore> scores) override;
  void on_embedding(std::span<const float> numbers) override {
    embedding.assign(numbers.begin(), numbers.end());
  }
  bool on_token(const trainer::TokenScore& token) override;
  void on_finish(trainer::FinishReason reason, const trainer::Usage& usage,
                 const std::string& error) override;

  // Wait for the end.
  trainer::FinishReason reason();
  std::vector<std::int32_t> ids();

  // To be read after the end.
  std::vector<trainer::TokenScore> prompt, tokens;
  std::vector<float> embedding;
  int prompts = 0, ends = 0;  // calls
  trainer::Usage usage;
  std::string error;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<trainer::FinishReason> reason_;
};

// Submits and returns what will hear of it.
std::shared_ptr<RecordedEvents> send(trainer::EngineClient& engine, trainer::Request request,
                                     trainer::RequestId* id = nullptr);
// Steps until there is nothing to do.
void finish_all(trainer::Engine& engine);

std::vector<std::int32_t> random_tokens(std::int64_t count, std::uint64_t seed,
                                        std::int64_t vocabulary = 256);

}  // namespace meshloom::tests
