#include "trainer/inference/grammar/stacks.h"

#include <algorithm>
#include <string>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kFrames = std::size_t{1} << 18;

std::uint64_t frame_key(const Stacks::Top& top) {
  return static_cast<std::uint64_t>(top.state) << 32 | top.below;
}

bool has_top(const std::vector<Stacks::Top>& tops, const Stacks::Top& top) {
  return std::find(tops.begin(), tops.end(), top) != tops.end();
}

}  // namespace

Stacks::Frame Stacks::frame(Grammar::State state, Frame below) {
  const Top top{state, below};
  const auto [it, fresh] = known_.try_emplace(frame_key(top), static_cast<Frame>(frames_.size()));
  if (!fresh) return it->second;
  if (frames_.size() >= kFrames) {
    known_.erase(it);
    throw Error("grammar",
                "must be read with at most " + std::to_string(kFrames) + " different stacks of rules",
                "more");
  }
  frames_.push_back(top);
  return it->second;
}

void Stacks::add_work(std::size_t steps) {
  if ((work_ += steps) > kWork)
    throw Error("grammar",
                "what may follow must be found in " + std::to_string(kWork) +
                    " steps; many alternatives at once take more",
                "more");
}

void Stacks::rewind(std::size_t mark) {
  for (; frames_.size() > mark; frames_.pop_back()) known_.erase(frame_key(frames_.back()));
}

void Stacks::enter(Grammar::State state, Frame below, Set& set) {
  seen_.clear();
  pending_.assign(1, {state, below});
  while (!pending_.empty()) {
    const Top top = pending_.back();
    pending_.pop_back();
    add_work(1 + seen_.size() + set.tops.size());
    const auto calls = grammar_.calls(top.state);
    const bool ends = grammar_.ends(top.state);
    if (!calls.empty() || ends) {
      if (has_top(seen_, top)) continue;
      seen_.push_back(top);
    }
    if (!grammar_.bytes(top.state).empty() && !has_top(set.tops, top)) set.tops.push_back(top);
    if (set.tops.size() > kMaxStacks || seen_.size() > 4 * kMaxStacks)
      throw Error("grammar",
                  "must be read with at most " + std::to_string(kMaxStacks) + " alternatives at once",
                  "more");
    for (const Grammar::Call& call : calls)
      pending_.push_back(
          {call.begin, grammar_.only_ends(call.next) ? top.below : frame(call.next, top.below)});
    if (!ends) continue;
    if (top.below == kBottom)
      set.complete = true;
    else if (top.below == kUnknown)
      set.unknown = true;
    else
      pending_.push_back(frames_[top.below]);
  }
}

void Stacks::resume(Frame frame, Set& set) {
  if (frame == kBottom)
    set.complete = true;
  else if (frame == kUnknown)
    set.unknown = true;
  else
    enter(frames_[frame].state, frames_[frame].below, set);
}

void Stacks::step(const Set& from, unsigned char byte, Set& to) {
  to.clear();
  for (const Top& top : from.tops) {
    add_work(1 + to.tops.size());
    for (const Grammar::ByteEdge& edge : grammar_.bytes(top.state)) {
      if (byte < edge.low) break;
      if (byte > edge.high) continue;
      if (grammar_.calls(edge.next).empty() && !grammar_.ends(edge.next)) {
        if (const Top next{edge.next, top.below}; !has_top(to.tops, next)) to.tops.push_back(next);
      } else {
        enter(edge.next, top.below, to);
      }
      break;
    }
  }
}

bool Grammar::accepts(std::string_view text) const {
  Stacks stacks(*this);
  Stacks::Set now, next;
  stacks.enter(begin(), Stacks::kBottom, now);
  for (const char c : text) {
    stacks.set_work(0);
    stacks.step(now, static_cast<unsigned char>(c), next);
    if (next.empty()) return false;
    std::swap(now, next);
  }
  return now.complete;
}

}  // namespace meshloom::trainer
