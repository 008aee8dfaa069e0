// Holds a text to a grammar while its tokens are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/inference/grammar/stacks.h"
#include "trainer/inference/grammar/token_masks.h"
#include "trainer/inference/token_constraint.h"

namespace meshloom::trainer {

// Of one request and one thread.
class TokenMatcher : public TokenConstraint {
 public:
  // `ends` are the tokens that end the text; they are allowed where the grammar may end, and only there. `begins_text`: no text
  // stands before, so that a space can be lost (TokenTable).
  TokenMatcher(std::shared_ptr<TokenMasks> masks, std::vector<std::int32_t> ends, bool begins_text);
  TokenMatcher(SharedGrammar grammar, std::shared_ptr<const TokenTable> table,
               std::vector<std::int32_t> ends = {});

  std::span<const std::uint64_t> allowed() override;
  void accept(std::int32_t id) override;
  bool ended() const override { return ended_ || can_only_end(); }

  // Whether the text may end here, and whether it can do nothing else.
  bool is_complete() const { return now_.complete; }
  bool can_only_end() const { return now_.complete && now_.tops.empty(); }

 private:
  static constexpr std::size_t kKept = 32;  // masks of stacks
  using Key = std::vector<std::pair<Grammar::State, Stacks::Frame>>;

  std::shared_ptr<TokenMasks> masks_;
  std::vector<std::int32_t> ends_;
  Stacks stacks_;
  Stacks::Set now_, next_;
  std::map<Key, std::vector<std::uint64_t>> kept_;
  std::vector<std::uint64_t> mask_;
  std::string tail_;  // the last bytes, for errors
  bool first_, ended_ = false;
};

}  // namespace meshloom::trainer
