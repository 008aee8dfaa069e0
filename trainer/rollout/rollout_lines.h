// An answer as a line of JSON: as the user's program reads it, and as a run records it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/rollout/completion_writer.h"

namespace meshloom::trainer {

// {"example", "completion", "completion_ids", "finish_reason"}: what the program reads. `prompt` is the prompt's line in its file.
std::string rollout_line(const std::string& prompt, const Completion& completion, const Tokenizer& tokenizer);

struct RolloutScore {
  double reward = 0;
  std::optional<double> advantage = {};          // where something is learned from it
  const std::vector<float>* logprobs = nullptr;  // of completion_ids; nullptr = they are not recorded
};
// The same with {"step"} in front of it, from 1, and {"reward", "advantage", "logprobs"} behind it.
std::string recorded_line(std::int64_t step, const std::string& line, const RolloutScore& score);

struct RecordedRollout {
  std::string prompt;
  Completion completion;
  double reward = 0;
};
// Those of a step, from 1, in a file of such lines with log-probabilities. Throws Error naming the line where one is not like that.
std::vector<RecordedRollout> read_rollouts(const std::string& path, std::int64_t step);

}  // namespace meshloom::trainer
