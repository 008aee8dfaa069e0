// Guesses that a text goes on as it did before (Saxena, Prompt Lookup Decoding, 2023): it finds the last tokens in the text in front of
// them, and proposes what followed there. Good for texts that repeat their prompt: summaries, edits, code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/inference/speculator.h"

namespace meshloom::trainer {

class PromptLookup : public Speculator {
 public:
  std::vector<std::vector<std::int32_t>> propose(std::span<const DraftRequest> requests,
                                                 std::int64_t budget) override;
};

// What followed the longest earlier match of the last tokens, which must have at least kMinMatch of them; the latest of equally
// long ones. `most` tokens, or none.
std::vector<std::int32_t> prompt_lookup(std::span<const std::int32_t> tokens, std::int64_t most);
constexpr std::int64_t kMinMatch = 3;

}  // namespace meshloom::trainer
