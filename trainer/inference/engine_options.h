// Options of an engine (engine.h).
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/compose/compose.h"
#include "trainer/config/trainer_config.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/request.h"

namespace meshloom::trainer {

struct EngineOptions {
  std::int64_t max_length = 0;      // tokens of a prompt and what follows it; 0 = the sequence of the recipe
  std::int64_t max_sequences = 16;  // that run at once
  std::int64_t step_tokens = 128;   // computed in one step
  std::int64_t page_size = DecodeOptions{}.page_size;  // tokens of a page
  std::int64_t pages = 0;                              // of all sequences; 0 = as many as they need at most
  std::int64_t max_waiting = 256;                      // requests beyond max_sequences
  bool prefix_cache = true;                            // whether computed pages are found again
  std::int64_t draft_tokens = 0;                       // guessed for a sequence, at most; 0 = no speculation
  std::optional<bool> batch_invariant = {};            // unset = on the CPU, where its kernels can
  std::int64_t checkpoint_step = 0;                    // of the first parameters, for the counters
  Pooling pooling = Pooling::none;                     // of embeddings, which a model with an encoder has not
  std::int64_t max_source = 0;  // tokens of a source, for a model with an encoder; 0 = as in training
};

// With what the recipe says in place of zeros. Throws Error for invalid ones.
EngineOptions resolved(EngineOptions options, const TrainerConfig& config);
// What an engine of these options runs. Throws Error for invalid ones.
ModelRunnerOptions runner_options(const EngineOptions& options, const TrainerConfig& config);

}  // namespace meshloom::trainer
