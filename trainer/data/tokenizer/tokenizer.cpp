#include "trainer/data/tokenizer/tokenizer.h"

#include <algorithm>

namespace meshloom::trainer {
namespace {

// The number of leading ids that are equal in both.
std::size_t same_front(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& before) {
  return static_cast<std::size_t>(std::mismatch(ids.begin(), ids.end(), before.begin(), before.end()).first -
                                  ids.begin());
}

}  // namespace

// When decoding gives the text back, a token begins where the decoded text of the tokens before it ends.
// Otherwise the ids of the text before the byte are compared.
Tokenizer::EncodingWithOffsets Tokenizer::encode_with_offsets(std::string_view text,
                                                              std::span<const std::size_t> bytes) const {
  EncodingWithOffsets encoding{encode_part(text), {}};
  const std::span<const std::int32_t> ids = encoding.ids;
  const bool same = !bytes.empty() && decode(ids) == text;
  for (const std::size_t byte : bytes) {
    std::size_t index = 0;
    if (same) {
      std::size_t low = 0,
                  high = ids.size();  // bounds of the first number of tokens whose text contains the byte
      while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (decode(ids.first(middle)).size() > byte)
          high = middle;
        else
          low = middle + 1;
      }
      index = low > 0 ? low - 1 : 0;
    } else {
      index = same_front(encoding.ids, encode_part(text.substr(0, byte)));
    }
    encoding.token_at.push_back(std::min(index, ids.empty() ? 0 : ids.size() - 1));
  }
  return encoding;
}

}  // namespace meshloom::trainer
