// Examples to fine-tune on: .jsonl files, a line each (jsonl_line.h). Only answers are learned: prompts are
// read, and the targets of their tokens are ignored.
#pragma once

#include "trainer/input/input_config.h"
#include "trainer/input/jsonl_line.h"

namespace meshloom::trainer {

struct JsonlFilesConfig : layers::ConfigOf<JsonlFilesConfig, InputConfig> {
  static constexpr std::string_view kName = "JsonlFiles";
  // Names of the members of a line; "" = not looked for.
  std::string prompt = "prompt", completion = "completion", messages = "messages", text = "text";
  bool end_of_text = true;  // answers end with the tokenizer's end-of-text token
  bool pack = true;         // as many examples in a row as fit; false = one
  // What becomes of an example with more than sequence + 1 tokens. "cut": its first prompt loses its front,
  // as much as is needed but for the text's begin (or one token), and then the whole its end. "skip": left
  // out. "refuse": an error.
  std::string too_long = "cut";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                             std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
