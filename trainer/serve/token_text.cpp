#include "trainer/serve/token_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/inference/text_stream.h"

namespace meshloom::trainer {

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::int64_t TokenText::characters() const { return count_characters(bytes); }

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer), bytes_(tokenizer) {}

TokenText TokenTexts::of(std::int32_t id) const {
  TokenText token;
  token.bytes = bytes_.of(id);
  if (token.bytes.empty()) token.bytes = tokenizer_.token(id);
  if (append_utf8(token.bytes, token.text) == 0 && token.text == token.bytes) return token;
  token.text = "bytes:";
  for (const char c : token.bytes) token.text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return token;
}

}  // namespace meshloom::trainer
