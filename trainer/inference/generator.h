// Text from a model, by recomputing the whole prefix for every token, and what an encoder reads with it: correct
// everywhere, fast nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/prompt.h"
#include "trainer/execute/session.h"
#include "trainer/inference/sampler.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {

class Generator {
 public:
  // Composes and allocates for prefixes of up to `sequence` tokens and sources of up to `source` (0 where the model has no
  // encoder); parameters come from `weights`.
  Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source, hal::Device& device,
            const kernels::Catalog& catalog, const SafetensorsFile& weights);

  // Appends `count` tokens to the prompt's, each told to `each` when it is known (false stops). The prompt must
  // hold at least one token below the vocabulary, and as much of a source where the model has an encoder; of a prefix
  // longer than the sequence the end counts.
  std::vector<std::int32_t> generate(const Prompt& prompt, std::int64_t count, const SamplerOptions& options,
                                     const std::function<bool(std::int32_t)>& each = {});

 private:
  void check(const Prompt& prompt) const;

  std::int64_t sequence_, source_, vocabulary_;
  std::unique_ptr<Session> session_;
};

}  // namespace meshloom::trainer
