// Which tokens a grammar allows in each of its states, found as they are needed and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "trainer/inference/grammar/grammar.h"
#include "trainer/inference/grammar/stacks.h"
#include "trainer/inference/grammar/token_table.h"

namespace meshloom::trainer {

// What all requests of one grammar share. Safe from any thread.
//
// Most tokens are decided by the state on top of a stack alone. The others end its rule on the way: for these the places in the
// trie are kept, from which each stack goes on by what it has below.
class TokenMasks {
 public:
  TokenMasks(SharedGrammar grammar, std::shared_ptr<const TokenTable> table);

  const Grammar& grammar() const { return *grammar_; }
  const TokenTable& table() const { return *table_; }

  // Sets the bits of the tokens that may follow `set`, in table().words() words. `first`: at the beginning of a text whose first
  // space is lost. `stacks` is as before afterwards. Throws Error where Stacks does.
  void add_allowed(Stacks& stacks, const Stacks::Set& set, bool first, std::span<std::uint64_t> mask);

 private:
  // Of a state on top.
  struct Local {
    std::vector<std::uint64_t> bits;  // all words, or
    std::vector<std::int32_t> ids;    // the tokens, when they are few
    std::vector<std::uint32_t> open;  // nodes of the trie where the rule has ended
  };
  static constexpr std::size_t kBytes = std::size_t{16} << 20;  // that are kept

  std::shared_ptr<const Local> local(Grammar::State state, Stacks& caller);
  template <typename Token, typename Unknown>
  void walk(Stacks& stacks, std::uint32_t node, const Stacks::Set& set, const Token& token,
            const Unknown& unknown) const;

  SharedGrammar grammar_;
  std::shared_ptr<const TokenTable> table_;
  std::mutex mutex_;
  std::unordered_map<Grammar::State, std::shared_ptr<const Local>> locals_;
  std::size_t bytes_ = 0;
};

}  // namespace meshloom::trainer
