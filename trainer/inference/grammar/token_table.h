// The bytes of a vocabulary as a trie, so that tokens which begin alike are looked at together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// Immutable, and safe from any thread.
class TokenTable {
 public:
  // By id; "" = a token that never stands in a text, such as "<|im_end|>". `loses_first_space`: the space with which the first
  // token of a text begins is not part of the text, as in SentencePiece.
  explicit TokenTable(std::vector<std::string> bytes, bool loses_first_space = false);

  std::size_t size() const { return bytes_.size(); }  // tokens
  std::size_t words() const { return (size() + 63) / 64; }
  // "" for an id that is none.
  const std::string& bytes(std::int32_t id) const;
  bool loses_first_space() const { return loses_first_space_; }

  // Nodes stand before those below them; 0 is the root.
  struct Node {
    std::uint32_t end;          // behind the last node below it
    std::uint32_t first_token;  // of those that end here: up to the next node's
    std::uint16_t depth;        // bytes
    unsigned char byte;         // the last of them
  };
  std::size_t nodes() const { return nodes_.size() - 1; }
  const Node& node(std::size_t index) const { return nodes_[index]; }
  std::span<const std::int32_t> tokens(std::size_t node) const {
    const std::uint32_t first = nodes_[node].first_token;
    return std::span(tokens_).subspan(first, nodes_[node + 1].first_token - first);
  }
  std::size_t longest() const { return longest_; }  // bytes of a token

 private:
  std::vector<std::string> bytes_;
  bool loses_first_space_;
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<std::int32_t> tokens_;
  std::size_t longest_ = 0;
};

// Of a tokenizer; ids from its vocabulary up to `vocabulary` have no text. It takes some hundred milliseconds.
std::shared_ptr<const TokenTable> token_table(const Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace meshloom::trainer
