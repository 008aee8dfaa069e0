#include "trainer/inference/grammar/token_table.h"

#include <algorithm>
#include <numeric>

#include "trainer/inference/token_bytes.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kLongestToken = 1024;              // bytes; longer ones never match
constexpr const char* kUnknownPiece = " \xe2\x81\x87 ";  // what SentencePiece decodes its unknown piece to

}  // namespace

TokenTable::TokenTable(std::vector<std::string> bytes, bool loses_first_space)
    : bytes_(std::move(bytes)), loses_first_space_(loses_first_space) {
  for (std::string& text : bytes_)
    if (text.size() > kLongestToken) text.clear();
  std::vector<std::int32_t> order;
  for (std::size_t id = 0; id < bytes_.size(); ++id)
    if (!bytes_[id].empty()) order.push_back(static_cast<std::int32_t>(id));
  const auto text = [&](std::int32_t id) -> const std::string& {
    return bytes_[static_cast<std::size_t>(id)];
  };
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const int less = text(a).compare(text(b));
    return less != 0 ? less < 0 : a < b;
  });
  nodes_.push_back({0, 0, 0, 0});
  std::vector<std::size_t> path{0};  // the nodes of the last token
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  const std::string* before = nullptr;
  for (const std::int32_t id : order) {
    const std::string& now = text(id);
    std::size_t same = 0;
    if (before)
      while (same < before->size() && (*before)[same] == now[same]) ++same;
    close(same);
    for (std::size_t i = same; i < now.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint16_t>(i + 1),
                        static_cast<unsigned char>(now[i])});
    }
    tokens_.push_back(id);
    longest_ = std::max(longest_, now.size());
    before = &now;
  }
  close(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), 0, 0});
}

const std::string& TokenTable::bytes(std::int32_t id) const {
  static const std::string kNone;
  return id >= 0 && static_cast<std::size_t>(id) < bytes_.size() ? bytes_[static_cast<std::size_t>(id)]
                                                                 : kNone;
}

std::shared_ptr<const TokenTable> token_table(const Tokenizer& tokenizer, std::int64_t vocabulary) {
  const TokenBytes token_bytes(tokenizer);
  std::vector<std::string> bytes(static_cast<std::size_t>(vocabulary));
  bool loses_first_space = false;
  for (std::int32_t id = 0; id < std::min(vocabulary, tokenizer.vocabulary()); ++id) {
    std::string text = token_bytes.of(id);
    if (text == kUnknownPiece || id == tokenizer.end_of_text()) continue;
    if (text.size() > 1 && text[0] == ' ' && tokenizer.decode({&id, 1}) == text.substr(1))
      loses_first_space = true;
    bytes[static_cast<std::size_t>(id)] = std::move(text);
  }
  return std::make_shared<TokenTable>(std::move(bytes), loses_first_space);
}

}  // namespace meshloom::trainer
