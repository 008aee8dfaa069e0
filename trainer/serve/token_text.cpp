#include "trainer/serve/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "trainer/inference/text_stream.h"

namespace meshloom::trainer {

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::int64_t TokenText::characters() const { return count_characters(bytes); }

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (const std::vector<std::int32_t> ids = tokenizer.encode("a"); !ids.empty()) front_ = {ids.back()};
  front_text_ = tokenizer.decode(front_);
}

TokenText TokenTexts::of(std::int32_t id) const {
  TokenText token;
  std::vector<std::int32_t> ids = front_;
  ids.push_back(id);
  token.bytes = tokenizer_.decode(ids);
  if (token.bytes.starts_with(front_text_))
    token.bytes.erase(0, front_text_.size());
  else
    token.bytes = tokenizer_.decode({&id, 1});
  const std::string name = tokenizer_.token(id);
  if (name.size() == 6 && name.starts_with("<0x") && name[5] == '>' && std::isxdigit(name[3]) &&
      std::isxdigit(name[4]))
    token.bytes = std::string(1, static_cast<char>(std::stoi(name.substr(3, 2), nullptr, 16)));
  if (token.bytes.empty()) token.bytes = name;
  if (append_utf8(token.bytes, token.text) == 0 && token.text == token.bytes) return token;
  token.text = "bytes:";
  for (const char c : token.bytes) token.text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return token;
}

}  // namespace meshloom::trainer
