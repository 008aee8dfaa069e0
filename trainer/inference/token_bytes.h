// The bytes of single tokens, as they stand within a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

class TokenBytes {
 public:
  // `tokenizer` must outlive this.
  explicit TokenBytes(const Tokenizer& tokenizer);
  // "" for a token without text, such as "<|im_end|>".
  std::string of(std::int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> front_;  // a token with text: a first token can lose its space
  std::string front_text_;
};

}  // namespace meshloom::trainer
