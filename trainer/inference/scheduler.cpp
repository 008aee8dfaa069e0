#include "trainer/inference/scheduler.h"

#include <algorithm>
#include <tuple>

namespace meshloom::trainer {
namespace {

class Scheduling {
 public:
  Scheduling(std::span<Sequence* const> sequences, PagePool& pool, const StepLimits& limits)
      : order_(sequences.begin(), sequences.end()), pool_(pool), limits_(limits), left_(limits) {
    std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
      return std::tie(a->priority, a->arrival) < std::tie(b->priority, b->arrival);
    });
    left_.sequences -= std::count_if(order_.begin(), order_.end(), [](auto* s) { return s->running; });
  }

  ScheduledStep run() {
    for (Sequence* s : order_)
      if (s->running && s->pending() == 1) add(*s);
    bool waits = false;  // nobody overtakes one that waits
    for (Sequence* s : order_) {
      if (s->running) {
        if (s->pending() > 1) add(*s);
      } else if (waits || left_.tokens == 0 || !admit(*s)) {
        waits = true;
      } else {
        add(*s);
      }
    }
    for (Chunk& chunk : step_.chunks) add_drafts(chunk);
    return std::move(step_);
  }

 private:
  // The pages that running sequences still need for the tokens that they have.
  std::int64_t promised() const {
    std::int64_t sum = 0;
    for (const Sequence* s : order_)
      if (s->running)
        sum +=
            std::max<std::int64_t>(pool_.pages_of(s->size()) - static_cast<std::int64_t>(s->pages.size()), 0);
    return sum;
  }

  std::int32_t free_id() const {
    std::int32_t id = 0;
    while (std::any_of(order_.begin(), order_.end(),
                       [&](const Sequence* s) { return s->running && s->sequence_id == id; }))
      ++id;
    return id;
  }

  bool admit(Sequence& s) {
    if (left_.sequences == 0 ||
        std::find(step_.preempted.begin(), step_.preempted.end(), &s) != step_.preempted.end())
      return false;
    // At least the last token is computed, as its logits are wanted.
    std::vector<Page> found;
    if (s.prefix_cache) found = pool_.find(s.tokens, (s.size() - 1) / pool_.page_size(), s.root);
    const std::int64_t needs = pool_.pages_of(s.size()) - static_cast<std::int64_t>(found.size());
    // Where it would take pages from others, or they from it, it would soon be computed again.
    if (needs > pool_.available() - promised()) {
      pool_.drop(found);
      return false;
    }
    s.sequence_id = free_id();
    s.running = true;
    s.computed = s.found = static_cast<std::int64_t>(found.size()) * pool_.page_size();
    s.pages = std::move(found);
    --left_.sequences;
    step_.admitted.push_back(&s);
    return true;
  }

  // As many tokens as this step has room for.
  Chunk chunk(Sequence& s) const {
    Chunk chunk{&s, 0, 0};
    for (const std::int64_t most = std::min(s.pending(), left_.tokens); chunk.count < most; ++chunk.count)
      if (s.wants_logits(s.computed + chunk.count)) {
        if (chunk.rows == left_.rows) break;
        ++chunk.rows;
      }
    return chunk;
  }

  void add(Sequence& s) {
    Chunk next = chunk(s);
    const auto has_pages = [&] {
      return static_cast<std::int64_t>(s.pages.size()) >= pool_.pages_of(s.computed + next.count);
    };
    while (!has_pages()) {
      if (const std::optional<Page> page = pool_.take()) {
        s.pages.push_back(*page);
      } else if (!preempt_behind(s)) {
        // What it has room for; the rest when those in front of it have ended, or have taken its pages.
        while (!has_pages())
          if (s.wants_logits(s.computed + --next.count)) --next.rows;
      }
    }
    if (next.count == 0) return;
    left_.tokens -= next.count;
    left_.rows -= next.rows;
    step_.chunks.push_back(next);
  }

  // Behind a chunk that ends with the last token.
  void add_drafts(Chunk& chunk) {
    Sequence& s = *chunk.sequence;
    if (chunk.count < s.pending()) return;
    std::int64_t count = std::min({static_cast<std::int64_t>(s.drafts.size()), left_.tokens, left_.rows});
    while (static_cast<std::int64_t>(s.pages.size()) < pool_.pages_of(s.size() + count)) {
      if (const std::optional<Page> page = pool_.take())
        s.pages.push_back(*page);
      else
        count = static_cast<std::int64_t>(s.pages.size()) * pool_.page_size() - s.size();
    }
    chunk.count += count;
    chunk.rows += count;
    left_.tokens -= count;
    left_.rows -= count;
  }

  // Takes the pages of the last running sequence, if that stands behind s.
  bool preempt_behind(const Sequence& s) {
    const auto last =
        std::find_if(order_.rbegin(), order_.rend(), [](const Sequence* each) { return each->running; });
    if (last == order_.rend() || *last == &s) return false;
    Sequence& victim = **last;
    const auto scheduled = std::find_if(step_.chunks.begin(), step_.chunks.end(),
                                        [&](const Chunk& each) { return each.sequence == &victim; });
    if (scheduled != step_.chunks.end()) {
      left_.tokens += scheduled->count;
      left_.rows += scheduled->rows;
      step_.chunks.erase(scheduled);
    }
    pool_.drop(victim.pages);
    victim.pages.clear();
    victim.computed = victim.found = 0;
    victim.running = false;
    ++left_.sequences;
    step_.preempted.push_back(&victim);
    return true;
  }

  std::vector<Sequence*> order_;
  PagePool& pool_;
  StepLimits limits_, left_;
  ScheduledStep step_;
};

}  // namespace

ScheduledStep schedule(std::span<Sequence* const> sequences, PagePool& pool, const StepLimits& limits) {
  return Scheduling(sequences, pool, limits).run();
}

}  // namespace meshloom::trainer
