// Text from a model, by recomputing the whole prefix for every token: correct everywhere, fast nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hal/device.h"
#include "kernels/catalog.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/execute/session.h"
#include "trainer/inference/sampler.h"
#include "trainer/rules/trainer_config.h"

namespace meshloom::trainer {

class Generator {
 public:
  // Composes and allocates for prefixes of up to `sequence` tokens; parameters come from `weights`.
  Generator(const TrainerConfig& config, std::int64_t sequence, hal::Device& device, const kernels::Catalog& catalog,
            const SafetensorsFile& weights);

  // Appends `count` tokens to the prompt, each told to `each` when it is known (false stops). The prompt must
  // hold at least one token below the vocabulary; of a prefix longer than the sequence the end counts.
  std::vector<std::int32_t> generate(std::vector<std::int32_t> prompt, std::int64_t count,
                                     const SamplerOptions& options,
                                     const std::function<bool(std::int32_t)>& each = {});

 private:
  std::int64_t sequence_, vocabulary_;
  std::unique_ptr<Session> session_;
};

}  // namespace meshloom::trainer
