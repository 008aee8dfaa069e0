#include "trainer/inference/engine_options.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hal/math.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

EngineOptions resolved(EngineOptions options, const TrainerConfig& config) {
  constexpr std::int64_t kMost =
      std::numeric_limits<std::int32_t>::max();  // that ids of tokens of the pool reach
  const auto require = [](const char* where, std::int64_t value, std::int64_t least) {
    if (value < least || value > kMost)
      throw Error(where, "must be from " + std::to_string(least) + " to " + std::to_string(kMost),
                  std::to_string(value));
  };
  require("max-length", options.max_length, 0);
  require("max-sequences", options.max_sequences, 1);
  require("step-tokens", options.step_tokens, 1);
  require("page-size", options.page_size, 1);
  require("pages", options.pages, 0);
  require("max-waiting", options.max_waiting, 0);
  require("draft-tokens", options.draft_tokens, 0);
  require("max-source", options.max_source, 0);
  if (layers::reads_source(*config.model)) {
    if (options.draft_tokens > 0)
      throw Error("draft-tokens", "needs a model without an encoder", "one with an encoder");
    options.pooling = Pooling::none;
    if (options.max_source == 0 && config.input) options.max_source = config.input->source(config.sequence);
    if (options.max_source == 0) options.max_source = config.sequence;
  } else if (options.max_source > 0) {
    throw Error("max-source", "needs a model with an encoder", "one without");
  }
  if (options.max_length == 0) options.max_length = config.sequence;
  if (options.pages == 0)
    options.pages = options.max_sequences * hal::ceil_div(options.max_length, options.page_size);
  if (options.pages > kMost / options.page_size)
    throw Error("pages", "must hold at most " + std::to_string(kMost) + " tokens together",
                std::to_string(options.pages) + " of " + std::to_string(options.page_size));
  return options;
}

ModelRunnerOptions runner_options(const EngineOptions& given, const TrainerConfig& config) {
  const EngineOptions options = resolved(given, config);
  std::vector<std::int64_t> tokens;
  for (std::int64_t count = 1; count < options.step_tokens; count *= 2) tokens.push_back(count);
  tokens.push_back(options.step_tokens);
  return {.length = options.max_length,
          .sequences = options.max_sequences,
          .rows = std::max(options.max_sequences, 1 + options.draft_tokens),
          .tokens = std::move(tokens),
          .page_size = options.page_size,
          .pages = options.pages,
          .batch_invariant = options.batch_invariant,
          .source = options.max_source,
          .hidden_states = options.pooling != Pooling::none};
}

}  // namespace meshloom::trainer
