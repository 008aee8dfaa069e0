#include "trainer/inference/grammar/token_masks.h"

#include <algorithm>
#include <utility>

namespace meshloom::trainer {
namespace {

void set_bit(std::span<std::uint64_t> mask, std::int32_t id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
}

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
  std::vector<Stacks::Set> sets(1);  // by bytes below `node`
  sets[0] = set;
  for (std::uint32_t at = node + 1; at < end;) {
    const TokenTable::Node& here = table_->node(at);
    const std::size_t depth = here.depth - top;
    if (sets.size() <= depth) sets.resize(depth + 1);
    stacks.step(sets[depth - 1], here.byte, sets[depth]);
    const Stacks::Set& now = sets[depth];
    if (!now.empty())
      for (const std::int32_t id : table_->tokens(at)) token(id);
    if (now.unknown) unknown(at);
    at = now.tops.empty() ? here.end : at + 1;
  }
}

std::shared_ptr<const TokenMasks::Local> TokenMasks::local(Grammar::State state) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = locals_.find(state); found != locals_.end()) return found->second;
  }
  auto made = std::make_shared<Local>();
  std::vector<std::uint64_t> bits(table_->words());
  std::size_t count = 0;
  Stacks stacks(*grammar_);
  Stacks::Set set;
  set.tops.push_back({state, Stacks::kUnknown});
  walk(
      stacks, 0, set,
      [&](std::int32_t id) {
        set_bit(bits, id);
        ++count;
      },
      [&](std::uint32_t node) { made->open.push_back(node); });
  if (count * 2 < bits.size()) {
    for (std::size_t word = 0; word < bits.size(); ++word)
      for (int bit = 0; bits[word] >> bit && bit < 64; ++bit)
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

void TokenMasks::add_allowed(Stacks& stacks, const Stacks::Set& set, bool first, std::span<std::uint64_t> mask) {
  const std::size_t mark = stacks.mark();
  const auto allow = [&](std::int32_t id) { set_bit(mask, id); };
  for (const Stacks::Top& top : set.tops) {
    const std::shared_ptr<const Local> known = local(top.state);
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
