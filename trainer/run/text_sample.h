// The text that the model of a run writes after the beginning of the held-out text: what a person watches a run by.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/inference/generator.h"

namespace meshloom::trainer {

class TextSample {
 public:
  // Of `tokens` tokens. All of these must outlive it.
  TextSample(const TrainerConfig& config, const Tokenizer& tokenizer, const Dataset& data,
             std::int64_t tokens);

  // The length that a Generator of `tokens` tokens needs, in a run of rows of `row` tokens.
  static std::int64_t sequence(std::int64_t row, std::int64_t tokens);

  // The lengths that a Generator of this sample needs.
  std::int64_t sequence() const { return sequence_; }
  std::int64_t source() const { return static_cast<std::int64_t>(prompt_.source.size()); }

  // The sample, with its prompt; ends early where `stopped` says so. The same parameters give the same text.
  std::string write(Generator& generator, const std::function<bool()>& stopped = {}) const;

 private:
  const TrainerConfig& config_;
  const Tokenizer& tokenizer_;
  std::int64_t tokens_, sequence_;
  Prompt prompt_;
};

}  // namespace meshloom::trainer
