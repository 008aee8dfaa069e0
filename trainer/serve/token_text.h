// The text of single tokens, for log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/token_bytes.h"

namespace meshloom::trainer {

struct TokenText {
  std::string text;   // "bytes:\xe2\x82" where the bytes are no characters
  std::string bytes;  // as the token stands within a text
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

// For each of the tokens of a text the characters of the text before it. Special tokens, which decode() leaves out,
// count where the text has their names.
std::vector<std::int64_t> offsets_in(std::string_view text, std::span<const std::int32_t> tokens,
                                     const Tokenizer& tokenizer);

}  // namespace meshloom::trainer
