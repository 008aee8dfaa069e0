// Plain training text: one running text, or independent documents.
#pragma once

#include <optional>
#include <string>

#include "trainer/data/input_config.h"

namespace meshloom::trainer {

struct TextFilesConfig : layers::ConfigOf<TextFilesConfig, InputConfig> {
  static constexpr std::string_view kName = "TextFiles";
  static constexpr std::string_view kAbout = "Plain text: one running text, or independent documents.";
  // The text that ends a document. With it, documents are packed into rows and kept apart: none attends to
  // another, each starts at position 0 and ends with the tokenizer's end-of-text token, if it has one. A
  // document of more than sequence + 1 tokens is cut into several documents.
  std::optional<std::string> separator;
  // Files may hold any bytes and are not checked to be text (file_kind.h).
  bool binary = false;

  void fields(layers::FieldVisitor& v) override;
  void check() const override;
  bool documents() const override { return separator.has_value(); }
  std::unique_ptr<Dataset> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                std::int64_t sequence) const override;
};

}  // namespace meshloom::trainer
