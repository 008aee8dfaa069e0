// Byte pair encoding of one word: of adjacent pairs the one with the lowest merge rank is merged first, the
// leftmost among equals (Sennrich et al., 2016).
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
  std::int32_t unknown = -1;                        // id; -1 = characters without a token are skipped
  bool fuse_unknown = false;                        // a run of unknown characters is one token
  bool byte_fallback = false;           // unknown characters become "<0xE2>", ... if these are tokens
  bool ignore_merges = false;           // a word that is a token is not split
  std::size_t max_symbols = INT32_MAX;  // of a word: positions in it are 32-bit integers

  static std::uint64_t pair(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::int32_t find(const std::string& token) const;  // -1 = none
  // To be called once the vocabulary is complete. Long words are then encoded in parts, cut between
  // characters that are adjacent in no token, which gives the same ids in less time and memory.
  void index_neighbours();
  // Appends the ids of `word` (UTF-8). Throws Error when it, or a part of it, has more than max_symbols
  // characters.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  // Merges the tokens of one part and appends the results.
  void merge(const std::vector<std::int32_t>& code_points, std::vector<std::int32_t>& ids) const;

  std::optional<std::unordered_set<std::uint64_t>> neighbours_;  // pair() of characters; none = not indexed
};

}  // namespace meshloom::trainer
