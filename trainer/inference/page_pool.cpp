#include "trainer/inference/page_pool.h"

#include <algorithm>

#include "kernels/core/rng.h"

namespace meshloom::trainer {

std::uint64_t page_hash(std::uint64_t parent, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = parent;
  for (const std::int32_t token : tokens) hash = kernels::mix(hash, static_cast<std::uint64_t>(token));
  return hash;
}

PagePool::PagePool(std::int64_t pages, std::int64_t page_size, bool prefix_cache, PageHash hash)
    : page_size_(page_size),
      prefix_cache_(prefix_cache),
      hash_(hash),
      pages_(static_cast<std::size_t>(pages)) {
  for (auto page = static_cast<Page>(pages); page-- > 0;) free_.push_back(page);
}

void PagePool::forget_all() {
  for (const auto& [used, page] : unused_) {
    forget(page);
    free_.push_back(page);
  }
  unused_.clear();
}

std::optional<Page> PagePool::take() {
  if (free_.empty()) {
    if (unused_.empty()) return std::nullopt;
    const Page page = unused_.begin()->second;
    unused_.erase(unused_.begin());
    forget(page);
    free_.push_back(page);
  }
  const Page page = free_.back();
  free_.pop_back();
  at(page).users = 1;
  return page;
}

Page PagePool::known(std::uint64_t parent, std::span<const std::int32_t> tokens) const {
  const auto [begin, end] = index_.equal_range(hash_(parent, tokens));
  for (auto it = begin; it != end; ++it) {
    const State& state = pages_[static_cast<std::size_t>(it->second)];
    if (state.parent == parent && std::ranges::equal(state.tokens, tokens)) return it->second;
  }
  return kNoPage;
}

std::vector<Page> PagePool::find(std::span<const std::int32_t> tokens, std::int64_t most, Root root) {
  std::vector<Page> found;
  const auto size = static_cast<std::size_t>(page_size_);
  std::uint64_t parent = root;
  for (std::int64_t i = 0; i < most && tokens.size() >= size; ++i, tokens = tokens.subspan(size)) {
    const Page page = known(parent, tokens.first(size));
    if (page == kNoPage) break;
    use(page);
    found.push_back(page);
    parent = at(page).name;
  }
  return found;
}

Page PagePool::keep(Page page, Page parent, std::span<const std::int32_t> tokens, Root root) {
  if (!prefix_cache_ || at(page).name != 0) return page;
  const std::uint64_t name = parent == kNoPage ? root : at(parent).name;
  if (const Page same = known(name, tokens); same != kNoPage) {
    use(same);
    release(page);
    return same;
  }
  State& state = at(page);
  state.name = ++names_;
  state.parent = name;
  state.tokens.assign(tokens.begin(), tokens.end());
  index_.emplace(hash_(name, tokens), page);
  return page;
}

// The last first: a page is found through those in front of it, so that it must not outlive them.
void PagePool::drop(std::span<const Page> pages) {
  for (std::size_t i = pages.size(); i-- > 0;) release(pages[i]);
}

void PagePool::use(Page page) {
  State& state = at(page);
  if (state.users++ == 0) unused_.erase({state.used, page});
}

void PagePool::release(Page page) {
  State& state = at(page);
  if (--state.users > 0) return;
  if (state.name == 0) {
    free_.push_back(page);
    return;
  }
  state.used = ++clock_;
  unused_.emplace(state.used, page);
}

void PagePool::forget(Page page) {
  State& state = at(page);
  const auto [begin, end] = index_.equal_range(hash_(state.parent, state.tokens));
  for (auto it = begin; it != end; ++it)
    if (it->second == page) {
      index_.erase(it);
      break;
    }
  state = {};
}

}  // namespace meshloom::trainer
