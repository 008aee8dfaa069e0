// Pairs of texts for a model with an encoder: .jsonl files whose lines have a prompt, which the encoder
// reads, and a completion, which the decoder learns to write. Pairs of a row know nothing of each other;
// padding is not read and has no target.
//
// A prompt ends with the tokenizer's end-of-text token, and so does a completion. What the decoder reads
// begins with what the tokenizer begins a text with, or, where that is nothing, with its end-of-text token.
#pragma once

#include <optional>
#include <string>

#include "trainer/data/input_config.h"

namespace meshloom::trainer {

struct JsonlPairsConfig : layers::ConfigOf<JsonlPairsConfig, InputConfig> {
  static constexpr std::string_view kName = "JsonlPairs";
  static constexpr std::string_view kAbout =
      "Pairs of texts for a model with an encoder, a line of JSON each.";
  std::string prompt = "prompt", completion = "completion";  // names of the members of a line
  std::optional<std::int64_t> source_sequence;  // tokens of a row's prompt; none = the run's sequence
  bool end_of_text = true;                      // prompts and completions end with that token
  bool pack = true;                             // as many pairs in a row as fit; false = one
  // What becomes of a prompt of more than source_sequence tokens, or of more than sequence to write: "cut" at
  // the end (of a prompt before its end-of-text token), "skip": the pair is left out, "refuse": an error.
  std::string too_long = "cut";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  std::int64_t source(std::int64_t sequence) const override { return source_sequence.value_or(sequence); }
  Prompt begin(const Tokenizer& tokenizer, std::string_view text) const override;
  std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                             std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
