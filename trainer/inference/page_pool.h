// The pages of the caches (layers/core/inference_step.h): who uses which, and which are found again. A page that is full can be
// made known: another sequence that begins with the same tokens then finds it and uses it as well. Pages that nobody uses any
// more stay known until they are needed for other tokens, those first that were used least recently.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace meshloom::trainer {

using Page = std::int32_t;
constexpr Page kNoPage = -1;

// Of a page's tokens and what stands in front of it. It only says where to look: tokens are compared.
using PageHash = std::uint64_t (*)(std::uint64_t parent, std::span<const std::int32_t> tokens);
std::uint64_t page_hash(std::uint64_t parent, std::span<const std::int32_t> tokens);

// Not safe from several threads at once.
class PagePool {
 public:
  // Without `prefix_cache`, no page is ever found again.
  PagePool(std::int64_t pages, std::int64_t page_size, bool prefix_cache = true, PageHash hash = page_hash);

  std::int64_t size() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t page_size() const { return page_size_; }
  std::int64_t in_use() const { return size() - available(); }
  // Those that take() can give: free ones, and known ones that nobody uses.
  std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + unused_.size()); }
  // So many pages hold so many tokens.
  std::int64_t pages_of(std::int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }

  // A page with one user; nothing when all are in use.
  std::optional<Page> take();
  // What pages of one kind of text begin from. Texts of another root share no pages with them, whatever their tokens: what an adapter
  // computes is not what another does. 0 = that of the model alone.
  using Root = std::uint64_t;
  Root new_root() { return ++names_; }
  // The known pages of the beginning of a text, at most so many. Each gains a user.
  std::vector<Page> find(std::span<const std::int32_t> tokens, std::int64_t most, Root root = 0);
  // Makes a page of the caller's known, which holds these page_size() tokens behind those of the page `parent`; kNoPage = it is
  // the first. `parent` must be a page of the caller's that is known. Returns the page to use from now on: where another with the same
  // tokens was known before, that one, and `page` has a user less.
  Page keep(Page page, Page parent, std::span<const std::int32_t> tokens, Root root = 0);
  // A sequence's pages in order have a user less each.
  void drop(std::span<const Page> pages);
  // Nothing that was computed is found again. No page may be in use.
  void forget_all();

 private:
  struct State {
    std::int64_t users = 0;
    std::uint64_t used = 0;  // when it was dropped
    std::uint64_t name =
        0;  // of what it holds, while it is known: unlike a page's number it never stands for two things
    std::uint64_t parent = 0;          // the name of the page in front of it, or its root
    std::vector<std::int32_t> tokens;  // while it is known
  };
  State& at(Page page) { return pages_[static_cast<std::size_t>(page)]; }
  Page known(std::uint64_t parent, std::span<const std::int32_t> tokens) const;
  void use(Page page);
  void release(Page page);
  void forget(Page page);

  std::int64_t page_size_;
  bool prefix_cache_;
  PageHash hash_;
  std::vector<State> pages_;
  std::vector<Page> free_;
  std::set<std::pair<std::uint64_t, Page>> unused_;  // known ones, by State::used
  std::unordered_multimap<std::uint64_t, Page> index_;
  std::uint64_t clock_ = 0, names_ = 0;
};

}  // namespace meshloom::trainer
