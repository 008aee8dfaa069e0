// Generates text by running the whole prefix, and the encoder's source, again for every token: correct
// everywhere, fast nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/compose/compose.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/examples.h"
#include "trainer/execute/session.h"
#include "trainer/inference/sampler.h"

namespace meshloom::trainer {

// Asks for the program that a Generator runs.
void compose_generation(ComposeOptions& options, std::int64_t sequence, std::int64_t source);

class Generator {
 public:
  // Composes and allocates for prefixes of up to `sequence` tokens and sources of up to `source` tokens (0
  // when the model has no encoder). The parameters are read from `weights`.
  Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source, hal::Device& device,
            const kernels::Catalog& catalog, const StoredTensors& weights);
  // Runs in a session whose plan was composed with compose_generation, on the parameters that it holds. The session must
  // outlive the generator.
  Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source, Session& session);

  // Appends `count` tokens to those of the prompt; calls `each` with every new token, which stops by
  // returning false. The prompt must have at least one token, all below the vocabulary's size, and so must
  // its source when the model has an encoder. Of a prefix that is longer than the sequence, the model reads
  // the end.
  std::vector<std::int32_t> generate(const Prompt& prompt, std::int64_t count, const SamplerOptions& options,
                                     const std::function<bool(std::int32_t)>& each = {});

 private:
  void check(const Prompt& prompt) const;

  std::int64_t sequence_, source_, vocabulary_;
  std::unique_ptr<Session> own_;
  Session* session_;
};

}  // namespace meshloom::trainer
