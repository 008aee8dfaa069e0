// Guesses the tokens that follow, so that one step computes several tokens of a sequence (Leviathan et al., 2023). A guess counts only
// where the model draws that very token itself. Where the engine is batch-invariant texts are the same with any guesses, or none;
// elsewhere programs of other sizes round differently, and a token whose lead is as small can differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/inference/request.h"

namespace meshloom::trainer {

// A sequence whose next tokens are to be guessed.
struct DraftRequest {
  RequestId id = 0;
  std::span<const std::int32_t> tokens;  // of the prompt, then the generated ones
  std::int64_t prompt = 0;               // how many are of the prompt
  const SamplerOptions* sampler = nullptr;
  std::int64_t most = 0;  // tokens to guess
};

// Called on the engine's thread, between two steps. What propose() throws means no guesses this time, unless it is DeviceLost.
class Speculator {
 public:
  virtual ~Speculator() = default;
  // For each request the tokens that it guesses, `budget` at most together; requests in front come first.
  virtual std::vector<std::vector<std::int32_t>> propose(std::span<const DraftRequest> requests,
                                                         std::int64_t budget) = 0;
  // It will not be asked for this one again.
  virtual void finished(RequestId /*id*/) {}
};

// How many tokens to guess for a sequence, by how the guesses before fared: one more than were right, or twice as many where all were.
// After guesses that were all wrong it pauses, longer each time, so that text that cannot be guessed costs little.
class DraftLength {
 public:
  // To be called once for each token of the sequence. 0 = it pauses.
  std::int64_t next(std::int64_t most);
  void verified(std::int64_t proposed, std::int64_t accepted);

 private:
  std::int64_t length_ = 0, pause_ = 0, misses_ = 0;  // 0 = it has not begun
};

}  // namespace meshloom::trainer
