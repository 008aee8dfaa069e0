#include "trainer/serve/marked_tokenizer.h"

#include <algorithm>
#include <utility>

namespace meshloom::trainer {

std::vector<std::int32_t> hidden_tokens(const Tokenizer& tokenizer, std::span<const std::string_view> names) {
  std::vector<std::int32_t> ids;
  for (const std::string_view name : names) {
    if (name.empty()) continue;
    const auto id = tokenizer.find(name);
    if (id && tokenizer.is_added(*id) && tokenizer.decode({&*id, 1}).empty()) ids.push_back(*id);
  }
  return ids;
}

MarkedTokenizer::MarkedTokenizer(const Tokenizer& tokenizer, std::vector<std::int32_t> shown)
    : tokenizer_(tokenizer), shown_(std::move(shown)) {}

std::string MarkedTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t from = 0;;) {
    const auto rest = ids.subspan(from);
    const auto mark = std::find_first_of(rest.begin(), rest.end(), shown_.begin(), shown_.end());
    text += tokenizer_.decode(rest.first(static_cast<std::size_t>(mark - rest.begin())));
    if (mark == rest.end()) return text;
    text += tokenizer_.token(*mark);
    from += static_cast<std::size_t>(mark - rest.begin()) + 1;
  }
}

}  // namespace meshloom::trainer
