// Generates text token by token. The keys and values of earlier tokens are kept in the model's caches, so that each token is
// computed once, and so is the encoder's source. A model that cannot keep them (layers::NoCache) computes both again for every token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/compose/compose.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/examples.h"
#include "trainer/execute/session.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/sampler.h"
#include "trainer/inference/scheduler.h"

namespace meshloom::trainer {

// Asks for the programs that a Generator of prefixes of up to `sequence` tokens runs beside others of a plan, on the parameters of
// these: those with caches, or where the model has none the one that computes the whole prefix. Returns why it has none; "" = it has.
std::string compose_generation(ComposeOptions& options, const layers::Config& model, std::int64_t sequence,
                               std::int64_t source, const kernels::Catalog& catalog,
                               const hal::DeviceInfo& device);

class Generator {
 public:
  // Composes and allocates for prefixes of up to `sequence` tokens and sources of up to `source` tokens (0
  // when the model has no encoder). The parameters are read from `weights`.
  Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source, hal::Device& device,
            const kernels::Catalog& catalog, const StoredTensors& weights);
  // Runs in a session whose plan was composed with compose_generation, on the parameters that it holds, which may change between
  // texts. The session must outlive the generator.
  Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source, Session& session);

  // Why every token computes the whole prefix; "" = it does not.
  const std::string& recomputes() const { return recomputes_; }

  // Appends `count` tokens to those of the prompt; calls `each` with every new token, which stops by
  // returning false. The prompt must have at least one token, all below the vocabulary's size, and so must
  // its source when the model has an encoder. Of a prefix that is longer than the sequence, the model reads
  // the end, which each further token computes again because the positions of all tokens change.
  std::vector<std::int32_t> generate(const Prompt& prompt, std::int64_t count, const SamplerOptions& options,
                                     const std::function<bool(std::int32_t)>& each = {});

 private:
  using Ids = std::vector<std::int32_t>;
  void check(const Prompt& prompt) const;
  void write(const std::string& name, Ids ids);
  void use(std::unique_ptr<ModelRunner> runner, std::int64_t pages);
  // Both return the logits of the token after the prefix.
  std::span<const float> recompute(const Prompt& prompt, std::span<const std::int32_t> prefix);
  std::span<const float> advance(std::span<const std::int32_t> prefix);

  std::int64_t length_, source_, vocabulary_;
  std::string recomputes_;
  bool others_change_parameters_ = false;
  // With caches:
  std::unique_ptr<ModelRunner> runner_;
  Sequence sequence_;
  std::vector<std::int32_t> read_;  // the source that it was computed for
  // Without:
  std::map<std::string, Ids> written_;  // what the inputs hold, by name
  std::vector<float> logits_;
  std::unique_ptr<Session> own_;
  Session* session_ = nullptr;
};

}  // namespace meshloom::trainer
