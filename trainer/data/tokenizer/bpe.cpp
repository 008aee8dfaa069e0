#include "trainer/data/tokenizer/bpe.h"

#include <queue>
#include <tuple>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"

namespace meshloom::trainer {
namespace {

std::string byte_token(char byte) {
  static const char* const kHex = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  return std::string("<0x") + kHex[value >> 4] + kHex[value & 15] + ">";
}

struct Symbol {
  std::int32_t id;  // -1 = merged into the previous one
  std::int32_t previous, next;
};

struct Candidate {
  std::int32_t rank, at, id;
  bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

}  // namespace

std::int32_t Bpe::find(const std::string& token) const {
  const auto it = vocabulary.find(token);
  return it == vocabulary.end() ? -1 : it->second;
}

void Bpe::index_neighbours() {
  neighbours_.emplace();
  for (const auto& [token, id] : vocabulary) {
    std::int32_t before = -1;
    for (std::size_t at = 0; at < token.size();) {
      const std::size_t bytes = code_point_bytes(std::string_view(token).substr(at));
      const std::int32_t code_point = find(token.substr(at, bytes));
      at += bytes;
      if (before >= 0 && code_point >= 0) neighbours_->insert(pair(before, code_point));
      before = code_point;
    }
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (ignore_merges)
    if (const std::int32_t id = find(std::string(word)); id >= 0) {
      ids.push_back(id);
      return;
    }
  std::vector<std::int32_t> code_points;  // of the current part
  std::int32_t before = -1;               // the previous character, if it is a token
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = code_point_bytes(word.substr(at));
    const std::string code_point(word.substr(at, bytes));
    at += bytes;
    const std::int32_t id = find(code_point);
    if (id >= 0) {
      // Between two characters that are adjacent in no token, nothing can be merged.
      if (before >= 0 && neighbours_ && !neighbours_->count(pair(before, id))) {
        merge(code_points, ids);
        code_points.clear();
      }
      code_points.push_back(id);
      before = id;
      after_unknown = false;
      continue;
    }
    before = -1;
    if (byte_fallback) {
      std::vector<std::int32_t> parts;
      for (char byte : code_point)
        if (const std::int32_t part = find(byte_token(byte)); part >= 0) parts.push_back(part);
      if (parts.size() == code_point.size()) {
        code_points.insert(code_points.end(), parts.begin(), parts.end());
        after_unknown = false;
        continue;
      }
    }
    if (unknown >= 0 && !(fuse_unknown && after_unknown)) code_points.push_back(unknown);
    after_unknown = true;
  }
  merge(code_points, ids);
}

void Bpe::merge(const std::vector<std::int32_t>& code_points, std::vector<std::int32_t>& ids) const {
  if (code_points.size() > max_symbols)
    throw Error(
        "tokenizer",
        "a word must have at most " + std::to_string(max_symbols) + " characters; cut the file into several",
        std::to_string(code_points.size()));
  std::vector<Symbol> symbols;
  symbols.reserve(code_points.size());
  for (const std::int32_t id : code_points) {
    const auto n = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, n - 1, n + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::int32_t at) {
    if (at < 0 || symbols[static_cast<std::size_t>(at)].next < 0) return;
    const Symbol& left = symbols[static_cast<std::size_t>(at)];
    const auto merge = merges.find(pair(left.id, symbols[static_cast<std::size_t>(left.next)].id));
    if (merge != merges.end()) queue.push({merge->second.rank, at, merge->second.id});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<std::size_t>(best.at)];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    const auto merge = merges.find(pair(left.id, right.id));
    if (merge == merges.end() || merge->second.rank != best.rank)
      continue;  // one of the two has been merged since
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  for (std::int32_t at = 0; at >= 0; at = symbols[static_cast<std::size_t>(at)].next)
    ids.push_back(symbols[static_cast<std::size_t>(at)].id);
}

}  // namespace meshloom::trainer
