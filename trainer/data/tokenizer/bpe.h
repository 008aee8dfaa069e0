// Byte pair encoding of one word: the pair of neighbours that was learned first is merged first, the leftmost of
// equals (Sennrich et al., 2016).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace meshloom::trainer {

class Bpe {
 public:
  std::unordered_map<std::string, std::int32_t> vocabulary;
  struct Merge {
    std::int32_t rank, id;
  };
  std::unordered_map<std::uint64_t, Merge> merges;  // by pair()
  std::int32_t unknown = -1;                        // id; -1 = letters without a token are left out
  bool fuse_unknown = false;                        // a run of unknown letters is one token
  bool byte_fallback = false;                       // they become "<0xE2>", ... where all of these are tokens
  bool ignore_merges = false;                       // a word that is a token is that token
  std::size_t max_letters = INT32_MAX;              // of a word: places in it are 32-bit integers

  static std::uint64_t pair(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::int32_t find(const std::string& token) const;  // -1 = none
  // To be called once the vocabulary is complete: long words are then encoded part by part, cut between letters that
  // stand side by side in no token, which gives the same ids in less time and memory.
  void index_neighbours();
  // Appends the ids of `word` (UTF-8). Throws Error when it, or a part, has more than max_letters letters.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  // Merges the tokens of one part and appends what they become.
  void merge(const std::vector<std::int32_t>& letters, std::vector<std::int32_t>& ids) const;

  std::optional<std::unordered_set<std::uint64_t>> neighbours_;  // pair() of letters; none = not indexed
};

}  // namespace meshloom::trainer
