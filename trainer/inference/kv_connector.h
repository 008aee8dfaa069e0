// Where an engine gets keys and values from that another one computed (a KV connector, as vLLM calls it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace meshloom::trainer {

// What the caches keep of one page of a request's prompt (ModelRunner::read_page()).
struct KVPage {
  std::uint64_t request = 0;  // RequestId
  std::int64_t index = 0;     // of the page in the prompt
  std::vector<std::byte> bytes;
};

struct KVArrivals {
  std::vector<KVPage> pages;         // those of a request in the order of the prompt
  std::vector<std::uint64_t> ended;  // requests of which nothing more comes, after their pages
};

// The thread that steps calls ask(), cancel() and take(), which never wait for the other side.
class KVConnector {
 public:
  virtual ~KVConnector() = default;
  // `wake` is called from any thread when take() has something to give. An empty function forgets the one before, and no call of that
  // one runs any more.
  virtual void when_arrived(std::function<void()> wake) = 0;
  // Asks for the pages of `tokens`, which are whole pages, from the page `first` on. False = this cannot be asked now; else the request is
  // among KVArrivals::ended once, whatever happens.
  virtual bool ask(std::uint64_t request, std::span<const std::int32_t> tokens, std::int64_t first) = 0;
  // Nobody needs these pages any more. Some that are on their way may still be given.
  virtual void cancel(std::uint64_t request) = 0;
  // What has arrived; pages of more bytes than that together are left for the next call, but for the first.
  virtual KVArrivals take(std::size_t max_bytes) = 0;
  virtual bool connected() const = 0;
  // Messages and connections of the other side that were not as they must be, since the start.
  virtual std::int64_t refusals() const = 0;
};

}  // namespace meshloom::trainer
