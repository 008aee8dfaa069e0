// Of an engine: pages that another engine computed, and pages for another.
#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/inference/engine.h"

namespace meshloom::trainer {
namespace {

// Of pages that are copied into the caches in front of one step, while texts are written that would wait for it.
constexpr std::size_t kPageBytes = 16 << 20;

}  // namespace

void Engine::set_kv_connector(std::shared_ptr<KVConnector> connector) {
  if (!options_.prefix_cache) throw Error("engine", "needs a prefix cache to receive pages", "none");
  if (!no_prefix_cache_.empty())
    throw Error("engine", "needs a model whose caches are pages alone to receive pages", no_prefix_cache_);
  connector_ = std::move(connector);
  connector_->when_arrived([this] {
    const std::lock_guard lock(mutex_);
    pages_arrived_ = true;
    wake_.notify_all();
  });
  publish();
}

// Asks for the whole pages of a prompt that are not known. At least the last token is computed, as its logits are wanted.
void Engine::fetch(Active& active) {
  if (!active.prefix_cache || active.with || active.request.pages_from) return;
  const std::int64_t size = options_.page_size;
  active.fetch_end = (active.size() - 1) / size;
  const std::vector<Page> known = pool_.find(active.tokens, active.fetch_end);
  pool_.drop(known);
  active.fetched_to = static_cast<std::int64_t>(known.size());
  if (active.fetched_to == active.fetch_end) return;
  counts_.kv_transfer.asked_tokens += (active.fetch_end - active.fetched_to) * size;
  active.fetching = connector_->ask(
      active.id(), std::span(active.tokens).first(static_cast<std::size_t>(active.fetch_end * size)),
      active.fetched_to);
  counts_.kv_transfer.fallbacks += !active.fetching;
}

// Whether pages have come, or will not.
bool Engine::take_pages() {
  if (!connector_) return false;
  bool running = false;
  for (const auto& each : active_) running |= each->running;
  {
    const std::lock_guard lock(mutex_);
    pages_arrived_ = false;
  }
  const KVArrivals arrived = connector_->take(running ? kPageBytes : std::numeric_limits<std::size_t>::max());
  const auto fetching = [&](RequestId id) {
    const auto found = std::find_if(active_.begin(), active_.end(),
                                    [&](const auto& each) { return each->fetching && each->id() == id; });
    return found == active_.end() ? nullptr : found->get();
  };
  for (const KVPage& page : arrived.pages)
    if (Active* active = fetching(page.request)) keep_received(*active, page);
  for (const RequestId id : arrived.ended)
    if (Active* active = fetching(id)) {
      active->fetching = false;
      counts_.kv_transfer.fallbacks += active->fetched_to < active->fetch_end;
    }
  return !arrived.pages.empty() || !arrived.ended.empty();
}

// Puts a page into the prefix cache, where the scheduler will find it unless it is needed for other tokens before. What stands in
// front of it may be gone already; then it is computed.
void Engine::keep_received(Active& active, const KVPage& received) {
  const auto size = static_cast<std::size_t>(options_.page_size),
             index = static_cast<std::size_t>(received.index);
  std::vector<Page> pages = pool_.find(active.tokens, received.index + 1);
  bool kept = pages.size() > index;  // another request has brought it
  if (pages.size() == index)
    if (const std::optional<Page> page = pool_.take()) {
      runner_.write_page(*page, received.bytes);
      const Page parent = pages.empty() ? kNoPage : pages.back();
      pages.push_back(pool_.keep(*page, parent, std::span(active.tokens).subspan(index * size, size)));
      kept = true;
    }
  pool_.drop(pages);
  KVTransferCounters& counts = counts_.kv_transfer;
  ++counts.pages_received;
  counts.bytes_received += static_cast<std::int64_t>(received.bytes.size());
  if (!kept || active.fetched_to != received.index) return;
  ++active.fetched_to;
  counts.received_tokens += options_.page_size;
}

// Texts whose pages are all known need no step.
void Engine::send_known_pages() {
  std::vector<Active*> known;
  for (const auto& each : active_) {
    if (!each->request.pages_from || each->began) continue;
    const std::int64_t count = each->size() / options_.page_size;
    each->pages = pool_.find(each->tokens, count);
    each->known = static_cast<std::int64_t>(each->pages.size());
    if (each->known == count) {
      known.push_back(each.get());
      continue;
    }
    pool_.drop(each->pages);
    each->pages.clear();
    each->known = 0;
  }
  for (Active* each : known) {
    counts_.prompt_tokens += each->prompt;
    counts_.cached_tokens += each->prompt;
    each->usage.cached_tokens = each->prompt;
    finish(*each, send_pages(*each) ? FinishReason::length : FinishReason::stop);
  }
}

// Gives out the pages that are known and were not given out. Returns whether more are wanted.
bool Engine::send_pages(Active& active) {
  for (; active.next_page < active.known; ++active.next_page) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(runner_.page_bytes()));
    runner_.read_page(active.pages[static_cast<std::size_t>(active.next_page)], bytes);
    ++counts_.kv_transfer.pages_sent;
    counts_.kv_transfer.bytes_sent += runner_.page_bytes();
    if (!active.request.events->on_page(active.next_page, std::move(bytes))) return false;
  }
  return true;
}

}  // namespace meshloom::trainer
