// A compiled grammar over bytes: a pushdown automaton, whose states read bytes or call rules. Immutable, and safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

class Grammar {
 public:
  using State = std::uint32_t;
  struct ByteEdge {
    unsigned char low, high;  // inclusive
    State next;
  };
  struct Call {
    State begin;  // of the rule
    State next;   // when the rule has ended
  };

  State begin() const { return 0; }
  std::size_t size() const { return states_.size(); }  // states
  // By rising bytes, which do not overlap.
  std::span<const ByteEdge> bytes(State state) const {
    const Node& node = states_[state];
    return std::span(bytes_).subspan(node.first_byte, node.bytes);
  }
  std::span<const Call> calls(State state) const {
    const Node& node = states_[state];
    return std::span(calls_).subspan(node.first_call, node.calls);
  }
  // Whether the rule may end here, and whether it can do nothing else.
  bool ends(State state) const { return states_[state].ends; }
  bool only_ends(State state) const {
    const Node& node = states_[state];
    return node.ends && node.bytes == 0 && node.calls == 0;
  }

  // Whether the grammar has this text. Throws Error where Stacks does.
  bool accepts(std::string_view text) const;

 private:
  friend class GrammarCompiler;
  struct Node {
    std::uint32_t first_byte = 0, first_call = 0;
    std::uint16_t bytes = 0;
    std::uint32_t calls = 0;
    bool ends = false;
  };
  std::vector<Node> states_;
  std::vector<ByteEdge> bytes_;
  std::vector<Call> calls_;
};

using SharedGrammar = std::shared_ptr<const Grammar>;

}  // namespace meshloom::trainer
