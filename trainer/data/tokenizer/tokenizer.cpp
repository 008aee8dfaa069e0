#include "trainer/data/tokenizer/tokenizer.h"

#include <algorithm>

namespace meshloom::trainer {
namespace {

// How many tokens at the front of `ids` are those of the text before `byte`, too.
std::size_t same_front(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& before) {
  return static_cast<std::size_t>(std::mismatch(ids.begin(), ids.end(), before.begin(), before.end()).first -
                                  ids.begin());
}

}  // namespace

// Where the tokens' text is the text, the place of a token is where the text of those before it ends.
Tokenizer::Placed Tokenizer::encode_with_offsets(std::string_view text, std::span<const std::size_t> bytes) const {
  Placed placed{encode_part(text), {}};
  const std::span<const std::int32_t> ids = placed.ids;
  const bool same = !bytes.empty() && decode(ids) == text;
  for (const std::size_t byte : bytes) {
    std::size_t index = 0;
    if (same) {
      std::size_t least = 0, most = ids.size();  // of how many tokens' text goes beyond the byte
      while (least < most) {
        const std::size_t middle = least + (most - least) / 2;
        if (decode(ids.first(middle)).size() > byte)
          most = middle;
        else
          least = middle + 1;
      }
      index = least > 0 ? least - 1 : 0;
    } else {
      index = same_front(placed.ids, encode_part(text.substr(0, byte)));
    }
    placed.at.push_back(std::min(index, ids.empty() ? 0 : ids.size() - 1));
  }
  return placed;
}

}  // namespace meshloom::trainer
