// Decides which tokens the next step computes (Yu et al., Orca, 2022; Agrawal et al., Sarathi-Serve, 2024). It knows no device.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "trainer/inference/page_pool.h"

namespace meshloom::trainer {

// A text as the scheduler sees it.
struct Sequence {
  int priority = 0;                  // smaller = earlier; equal ones by arrival
  std::uint64_t arrival = 0;         // of no other sequence
  std::vector<std::int32_t> tokens;  // of the prompt, then the generated ones
  std::int64_t prompt = 0;           // how many are of the prompt
  std::int64_t scored = kUnscored;   // the logits of tokens of the prompt are wanted from this one on
  bool prefix_cache = true;          // whether it may use pages that others computed
  std::int32_t adapter = -1;         // its slot (layers/adapters/lora_slots.h); -1 = none
  PagePool::Root root = 0;           // of its pages

  bool running = false;
  std::int64_t computed = 0;  // tokens whose keys and values are kept
  std::int64_t written = 0;   // and those of drafts and texts before, since `computed` was 0
  std::int64_t found = 0;     // of them, those that were found when it began to run
  std::vector<Page> pages;
  std::int64_t source = 0;           // tokens of the source that was read for it (ModelRunner::encode)
  std::int32_t sequence_id = 0;      // of no other that runs; below the number of those that run at once
  std::vector<std::int32_t> drafts;  // guesses of the tokens that follow

  static constexpr std::int64_t kUnscored = std::numeric_limits<std::int64_t>::max();
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t pending() const { return size() - computed; }
  // Of the tokens, then of the drafts.
  std::int32_t token(std::int64_t at) const {
    return at < size() ? tokens[static_cast<std::size_t>(at)] : drafts[static_cast<std::size_t>(at - size())];
  }
  // Of the last token, which the next one is drawn from, of the drafts, and of the tokens that are scored.
  bool wants_logits(std::int64_t at) const { return at >= size() - 1 || (at >= scored && at < prompt - 1); }
};

// The next `count` tokens and drafts of a sequence behind those that are computed; of `rows` of them the logits are wanted.
struct Chunk {
  Sequence* sequence;
  std::int64_t count, rows;
};

struct StepLimits {
  std::int64_t tokens, rows;  // of one step, of all sequences together
  std::int64_t sequences;     // that run at once
};

struct ScheduledStep {
  std::vector<Chunk> chunks;
  std::vector<Sequence*> admitted, preempted;
};

// First a token of each sequence that has one to compute, then chunks of the others, in the order of (priority, arrival), then drafts
// in what is left of the step and of the pages. Takes the pages of what it returns. Sequences that begin to run find what they can of
// their pages, and get a sequence_id. One that is preempted gives its pages back and is to be computed again.
// If the pool holds the longest of the sequences, the first in order always gets on.
ScheduledStep schedule(std::span<Sequence* const> sequences, PagePool& pool, const StepLimits& limits);

}  // namespace meshloom::trainer
