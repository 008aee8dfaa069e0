// Plain text to train on: one running text, or documents that know nothing of each other.
#pragma once

#include <optional>
#include <string>

#include "trainer/data/input_config.h"

namespace meshloom::trainer {

struct TextFilesConfig : layers::ConfigOf<TextFilesConfig, InputConfig> {
  static constexpr std::string_view kName = "TextFiles";
  static constexpr std::string_view kAbout =
      "Plain text: one running text, or documents that know nothing of each other.";
  // The text that ends a document. With it, documents are packed into rows and kept apart: none sees another,
  // each starts at position 0 and ends with the tokenizer's end-of-text token where that has one. A document
  // of more than sequence + 1 tokens is cut into pieces that are documents.
  std::optional<std::string> separator;
  // Files of any bytes: they need not be text, and what they hold is not looked at (file_kind.h).
  bool binary = false;

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return separator.has_value(); }
  std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                             std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
