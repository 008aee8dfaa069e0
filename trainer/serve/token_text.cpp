#include "trainer/serve/token_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/tokenizer/unicode.h"
#include "trainer/inference/text_stream.h"

namespace meshloom::trainer {

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

std::vector<std::int64_t> offsets_in(std::string_view text, std::span<const std::int32_t> tokens,
                                     const Tokenizer& tokenizer) {
  TextStream before(tokenizer);
  std::vector<std::int64_t> offsets;
  const std::int64_t all = count_characters(text);
  std::int64_t of_names = 0;
  for (const std::int32_t id : tokens) {
    const std::int64_t decoded = before.characters(), offset = std::min(decoded + of_names, all);
    offsets.push_back(offset);
    before.add(id);
    if (before.characters() != decoded || !tokenizer.is_added(id)) continue;
    std::string_view rest = text;
    for (std::int64_t i = 0; i < offset; ++i) rest.remove_prefix(code_point_bytes(rest));
    if (const std::string name = tokenizer.token(id); rest.starts_with(name))
      of_names += count_characters(name);
  }
  return offsets;
}

}  // namespace meshloom::trainer
