// Pairs of texts for a model with an encoder: .jsonl files whose lines have a prompt, which the encoder
// reads, and a completion, which the decoder is trained to write. The pairs of a row do not attend to each
// other; padding is not attended to and has no target.
//
// Prompts and completions end with the tokenizer's end-of-text token. The decoder's input begins with the
// tokenizer's begin-of-text tokens, or, if there are none, with its end-of-text token.
#pragma once

#include <optional>
#include <string>

#include "trainer/data/input_config.h"

namespace meshloom::trainer {

struct JsonlPairsConfig : layers::ConfigOf<JsonlPairsConfig, InputConfig> {
  static constexpr std::string_view kName = "JsonlPairs";
  static constexpr std::string_view kAbout =
      "Pairs of prompt and completion for a model with an encoder, one per line of JSON.";
  std::string prompt = "prompt", completion = "completion";  // names of the members of a line
  std::optional<std::int64_t> source_sequence;  // tokens of a row's prompt; none = the run's sequence
  bool end_of_text = true;                      // prompts and completions end with that token
  bool pack = true;                             // a row holds as many pairs as fit; false = one
  // What happens to a pair whose prompt has more than source_sequence tokens or whose completion does not fit
  // into sequence. "cut": its end is removed (of a prompt, before its end-of-text token). "skip": the pair is
  // left out. "refuse": it is an error.
  std::string too_long = "cut";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  std::int64_t source(std::int64_t sequence) const override { return source_sequence.value_or(sequence); }
  Prompt begin(const Tokenizer& tokenizer, std::string_view text) const override;
  std::unique_ptr<Dataset> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
