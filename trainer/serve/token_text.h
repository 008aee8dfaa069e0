// The text of single tokens, for log-probabilities.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/token_bytes.h"

namespace meshloom::trainer {

struct TokenText {
  std::string text;   // "bytes:\xe2\x82" where the bytes are no characters
  std::string bytes;  // as the token stands within a text
  // Characters that begin in the token.
  std::int64_t characters() const;
};

class TokenTexts {
 public:
  // `tokenizer` must outlive this.
  explicit TokenTexts(const Tokenizer& tokenizer);
  // A token without text, such as "<|im_end|>", by its name.
  TokenText of(std::int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  TokenBytes bytes_;
};

std::int64_t count_characters(std::string_view text);

}  // namespace meshloom::trainer
