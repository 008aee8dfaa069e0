// Fine-tuning examples in .jsonl files, one per line (jsonl_line.h). The loss counts the answers only; the
// model reads prompts, but their tokens have no targets.
#pragma once

#include "trainer/data/jsonl/chat_input.h"
#include "trainer/data/jsonl/jsonl_line.h"

namespace meshloom::trainer {

class JsonlFormat;

struct JsonlFilesConfig : layers::ConfigOf<JsonlFilesConfig, ChatInputConfig> {
  static constexpr std::string_view kName = "JsonlFiles";
  static constexpr std::string_view kAbout =
      "Fine-tuning examples, one per line of JSON; only answers are trained on.";
  // Names of the members of a line; "" = not used.
  std::string prompt = "prompt", completion = "completion", messages = "messages", text = "text",
              chosen = "chosen", rejected = "rejected";
  // Completions, texts, and answers in a built-in format end with the tokenizer's end-of-text token. A
  // template itself says how an answer ends.
  bool end_of_text = true;
  bool pack = true;  // a row holds as many examples as fit; false = one
  std::int64_t preferences_per_row =
      4;  // at most, where examples are packed: for each the loss has some calls
  // What happens to an example with more than sequence + 1 tokens. "cut": the front of its first prompt is
  // removed, apart from the begin-of-text tokens (or one token), and if that is not enough, the end of the
  // example. "skip": it is left out. "refuse": it is an error.
  std::string too_long = "cut";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  std::int64_t preferences() const override { return pack ? preferences_per_row : 1; }
  std::unique_ptr<Dataset> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                std::int64_t sequence) const override;
  // How lines become examples for rows of so many tokens. The tokenizer must outlive it.
  std::shared_ptr<const JsonlFormat> format(const Tokenizer& tokenizer, std::int64_t sequence) const;
};

}  // namespace meshloom::trainer
