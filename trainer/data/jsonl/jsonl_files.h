// Examples to fine-tune on: .jsonl files, a line each (jsonl_line.h). Only answers are learned: prompts are
// read, and the targets of their tokens are ignored.
#pragma once

#include "trainer/data/input_config.h"
#include "trainer/data/jsonl/jsonl_line.h"

namespace meshloom::trainer {

struct JsonlFilesConfig : layers::ConfigOf<JsonlFilesConfig, InputConfig> {
  static constexpr std::string_view kName = "JsonlFiles";
  static constexpr std::string_view kAbout =
      "Examples to fine-tune on, a line of JSON each; only answers are learned.";
  // Names of the members of a line; "" = not looked for.
  std::string prompt = "prompt", completion = "completion", messages = "messages", text = "text";
  // How messages are written: none = by the tokenizer's chat template, or where it has none in the format "roles", which
  // is built in (chat_format.h).
  std::optional<std::string> chat_template;
  std::optional<std::int64_t>
      chat_time;  // what a template that asks for the time is told, in seconds since 1970; none = now
  // Completions and texts, and answers in a built-in format, end with the tokenizer's end-of-text token; a template says
  // itself how an answer ends.
  bool end_of_text = true;
  bool pack = true;  // as many examples in a row as fit; false = one
  // What becomes of an example with more than sequence + 1 tokens. "cut": its first prompt loses its front,
  // as much as is needed but for the text's begin (or one token), and then the whole its end. "skip": left
  // out. "refuse": an error.
  std::string too_long = "cut";

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return true; }
  std::vector<std::string> record(const TargetFormat& learned) override;
  bool needs_record() const override { return tokenizer->chat_template && !chat_time; }
  void resume_from(const InputConfig& before) override;
  std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                             std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
