#include "trainer/inference/grammar/token_matcher.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {

TokenMatcher::TokenMatcher(std::shared_ptr<TokenMasks> masks, std::vector<std::int32_t> ends,
                           bool begins_text)
    : masks_(std::move(masks)),
      ends_(std::move(ends)),
      stacks_(masks_->grammar()),
      first_(begins_text && masks_->table().loses_first_space()) {
  stacks_.enter(masks_->grammar().begin(), Stacks::kBottom, now_);
}

TokenMatcher::TokenMatcher(SharedGrammar grammar, std::shared_ptr<const TokenTable> table,
                           std::vector<std::int32_t> ends)
    : TokenMatcher(std::make_shared<TokenMasks>(std::move(grammar), std::move(table)), std::move(ends),
                   false) {}

std::span<const std::uint64_t> TokenMatcher::allowed() {
  Key key;
  for (const Stacks::Top& top : now_.tops) key.emplace_back(top.state, top.below);
  std::sort(key.begin(), key.end());
  auto found = first_ ? kept_.end() : kept_.find(key);
  if (found == kept_.end()) {
    mask_.assign(masks_->table().words(), 0);
    masks_->add_allowed(stacks_, now_, first_, mask_);
    for (const std::int32_t id : ends_)
      if (static_cast<std::size_t>(id) < masks_->table().size())
        mask_[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (id % 64));
    if (!first_) {
      if (kept_.size() >= kKept) kept_.clear();
      kept_.emplace(std::move(key), mask_);
    }
  } else {
    mask_ = found->second;
  }
  if (now_.complete)
    for (const std::int32_t id : ends_)
      if (static_cast<std::size_t>(id) < masks_->table().size())
        mask_[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
  if (std::all_of(mask_.begin(), mask_.end(), [](std::uint64_t word) { return word == 0; }))
    throw Error("grammar", "a token of the vocabulary must be able to continue the text",
                "none after " + shown(tail_));
  return mask_;
}

void TokenMatcher::accept(std::int32_t id) {
  const auto refuse = [&] {
    throw Error("grammar", "must allow the token that is drawn",
                "token " + std::to_string(id) + " after " + shown(tail_));
  };
  if (std::find(ends_.begin(), ends_.end(), id) != ends_.end()) {
    if (!now_.complete) refuse();
    ended_ = true;
    return;
  }
  std::string_view bytes = masks_->table().bytes(id);
  if (bytes.empty() || ended_) refuse();
  const std::string tail = tail_ + std::string(bytes);
  if (std::exchange(first_, false) && bytes[0] == ' ') bytes.remove_prefix(1);
  stacks_.set_work(0);
  for (const char c : bytes) {
    stacks_.step(now_, static_cast<unsigned char>(c), next_);
    if (next_.empty()) refuse();
    std::swap(now_, next_);
  }
  tail_ = tail.substr(tail.size() - std::min<std::size_t>(tail.size(), 24));
}

}  // namespace meshloom::trainer
