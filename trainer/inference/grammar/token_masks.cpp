#include "trainer/inference/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <utility>

namespace meshloom::trainer {
namespace {

void set_bit(std::span<std::uint64_t> mask, std::int32_t id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
}

// The state behind a byte. The states that are asked for most have tables, where there is much to ask.
class NextStates {
 public:
  static constexpr Grammar::State kNone = UINT32_MAX;
  NextStates(const Grammar& grammar, bool tables)
      : grammar_(grammar), rows_(tables ? std::size_t{1} << kLogRows : 0) {}

  Grammar::State after(Grammar::State state, unsigned char byte) {
    if (rows_.empty()) return found(state, byte);
    Row& row = rows_[(state * 0x9e3779b1u) >> (32 - kLogRows)];
    if (row.state != state) {
      if (row.wanted != state) {  // a state that comes once needs no table
        row.wanted = state;
        return found(state, byte);
      }
      row.state = state;
      row.next.fill(kNone);
      for (const Grammar::ByteEdge& edge : grammar_.bytes(state))
        std::fill(row.next.begin() + edge.low, row.next.begin() + edge.high + 1, edge.next);
    }
    return row.next[byte];
  }

 private:
  static constexpr int kLogRows = 7;
  struct Row {
    Grammar::State state = kNone, wanted = kNone;
    std::array<Grammar::State, 256> next{};
  };

  Grammar::State found(Grammar::State state, unsigned char byte) const {
    for (const Grammar::ByteEdge& edge : grammar_.bytes(state)) {
      if (byte < edge.low) break;
      if (byte <= edge.high) return edge.next;
    }
    return kNone;
  }

  const Grammar& grammar_;
  std::vector<Row> rows_;
};

}  // namespace

TokenMasks::TokenMasks(SharedGrammar grammar, std::shared_ptr<const TokenTable> table)
    : grammar_(std::move(grammar)), table_(std::move(table)) {}

// Calls `token` for each token below `node` that the grammar has after `set`, and `unknown` for each node where it goes on with
// what is not known.
template <typename Token, typename Unknown>
void TokenMasks::walk(Stacks& stacks, std::uint32_t node, const Stacks::Set& set, const Token& token,
                      const Unknown& unknown) const {
  const std::uint32_t end = table_->node(node).end;
  const std::size_t top = table_->node(node).depth;
  // By bytes below `node`: most often one stack, whose state reads a byte and nothing else.
  struct Level {
    bool plain = false;
    Stacks::Top top{};
    Stacks::Set set;
  };
  std::vector<Level> levels(8);
  levels[0].plain = set.tops.size() == 1;
  if (levels[0].plain)
    levels[0].top = set.tops[0];
  else
    levels[0].set = set;
  std::size_t plain = 0;
  NextStates next_states(*grammar_, end - node > 1024);
  for (std::uint32_t at = node + 1; at < end;) {
    const TokenTable::Node& here = table_->node(at);
    if (levels.size() <= here.depth - top) levels.resize(2 * levels.size());
    Level& from = levels[here.depth - top - 1];
    Level& now = levels[here.depth - top];
    if (from.plain) {
      const Grammar::State state = next_states.after(from.top.state, here.byte);
      now.plain = state != NextStates::kNone && grammar_->calls(state).empty() && !grammar_->ends(state);
      if (now.plain) {
        now.top = {state, from.top.below};
        for (const std::int32_t id : table_->tokens(at)) token(id);
        ++at;
        ++plain;
        continue;
      }
      now.set.clear();
      if (state != NextStates::kNone) stacks.enter(state, from.top.below, now.set);
    } else {
      now.plain = false;
      stacks.step(from.set, here.byte, now.set);
    }
    if (!now.set.empty())
      for (const std::int32_t id : table_->tokens(at)) token(id);
    if (now.set.unknown) unknown(at);
    at = now.set.tops.empty() ? here.end : at + 1;
  }
  stacks.add_work(plain);
}

std::shared_ptr<const TokenMasks::Local> TokenMasks::local(Grammar::State state, Stacks& caller) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = locals_.find(state); found != locals_.end()) return found->second;
  }
  auto made = std::make_shared<Local>();
  std::vector<std::uint64_t> bits(table_->words());
  std::size_t count = 0;
  Stacks stacks(*grammar_);
  stacks.set_work(caller.work());
  Stacks::Set set;
  set.tops.push_back({state, Stacks::kUnknown});
  walk(
      stacks, 0, set,
      [&](std::int32_t id) {
        set_bit(bits, id);
        ++count;
      },
      [&](std::uint32_t node) { made->open.push_back(node); });
  caller.set_work(stacks.work());
  if (count * 2 < bits.size()) {
    for (std::size_t word = 0; word < bits.size(); ++word)
      for (int bit = 0; bit < 64 && bits[word] >> bit != 0; ++bit)
        if (bits[word] >> bit & 1) made->ids.push_back(static_cast<std::int32_t>(word * 64) + bit);
  } else {
    made->bits = std::move(bits);
  }
  const std::lock_guard lock(mutex_);
  const std::size_t size = made->bits.size() * 8 + made->ids.size() * 4 + made->open.size() * 4 + 128;
  if (bytes_ + size > kBytes) return made;
  if (locals_.emplace(state, made).second) bytes_ += size;
  return made;
}

void TokenMasks::add_allowed(Stacks& stacks, const Stacks::Set& set, bool first,
                             std::span<std::uint64_t> mask) {
  const std::size_t mark = stacks.mark();
  stacks.set_work(0);
  const auto allow = [&](std::int32_t id) { set_bit(mask, id); };
  for (const Stacks::Top& top : set.tops) {
    const std::shared_ptr<const Local> known = local(top.state, stacks);
    for (std::size_t word = 0; word < known->bits.size(); ++word) mask[word] |= known->bits[word];
    for (const std::int32_t id : known->ids) allow(id);
    if (known->open.empty() || top.below == Stacks::kBottom) continue;
    Stacks::Set below;
    stacks.resume(top.below, below);
    if (below.tops.empty()) continue;
    for (const std::uint32_t node : known->open) walk(stacks, node, below, allow, [](std::uint32_t) {});
  }
  if (first) {
    // What a text begins with is what stands behind the space.
    for (std::uint32_t at = 1; at < table_->node(0).end; at = table_->node(at).end) {
      if (table_->node(at).byte != ' ') continue;
      for (std::uint32_t node = at; node < table_->node(at).end; ++node)
        for (const std::int32_t id : table_->tokens(node))
          mask[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (id % 64));
      for (const std::int32_t id : table_->tokens(at)) allow(id);
      walk(stacks, at, set, allow, [](std::uint32_t) {});
    }
  }
  stacks.rewind(mark);
}

}  // namespace meshloom::trainer
