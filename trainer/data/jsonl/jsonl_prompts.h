// Prompts in .jsonl files, one per line, which the model answers while it trains (trainer/rollout). A line is an object of one of
// these forms, which are those of TRL; its other members are for the program that rewards the answers:
//   {"prompt": TEXT}
//   {"prompt": MESSAGES}    the model writes the assistant's next message; "tools" beside it is for the template
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/data/jsonl/chat_input.h"

namespace meshloom::trainer {

struct JsonlPromptsConfig : layers::ConfigOf<JsonlPromptsConfig, ChatInputConfig> {
  static constexpr std::string_view kName = "JsonlPrompts";
  static constexpr std::string_view kAbout =
      "Prompts, one per line of JSON, which the model answers and a program rewards (train --reward).";
  std::string prompt = "prompt";  // the name of the member
  std::int64_t completions_per_prompt =
      8;                                   // answers that are compared with each other; they divide the batch
  std::int64_t max_completion_tokens = 0;  // 0 = half of the sequence
  bool scale_advantages = true;            // divides by the standard deviation of a prompt's rewards
  bool mask_truncated = false;             // answers without an end are not trained on
  std::int64_t max_sequences = 16;         // answers that are written at once, at most
  std::int64_t steps_per_generation = 1;   // steps for which answers are written together
  std::int64_t num_iterations = 1;         // how often each answer is learned from
  double eval_temperature = 0;             // of answers to held-out prompts; 0 = the most probable tokens
  // What happens to a prompt that leaves no room for an answer: "cut", its front is removed, apart from the begin-of-text tokens;
  // "skip", it is left out; "refuse", it is an error.
  std::string too_long = "skip";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  const JsonlPromptsConfig* prompts() const override { return this; }
  std::int64_t completion_tokens(std::int64_t sequence) const;
  std::unique_ptr<Dataset> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
