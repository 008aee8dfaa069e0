#include "trainer/inference/token_bytes.h"

#include <cctype>

namespace meshloom::trainer {

TokenBytes::TokenBytes(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (const std::vector<std::int32_t> ids = tokenizer.encode("a"); !ids.empty()) front_ = {ids.back()};
  front_text_ = tokenizer.decode(front_);
}

std::string TokenBytes::of(std::int32_t id) const {
  std::vector<std::int32_t> ids = front_;
  ids.push_back(id);
  std::string bytes = tokenizer_.decode(ids);
  if (bytes.starts_with(front_text_))
    bytes.erase(0, front_text_.size());
  else
    bytes = tokenizer_.decode({&id, 1});
  const std::string name = tokenizer_.token(id);
  if (name.size() == 6 && name.starts_with("<0x") && name[5] == '>' &&
      std::isxdigit(static_cast<unsigned char>(name[3])) &&
      std::isxdigit(static_cast<unsigned char>(name[4])))
    bytes = std::string(1, static_cast<char>(std::stoi(name.substr(3, 2), nullptr, 16)));
  return bytes;
}

}  // namespace meshloom::trainer
