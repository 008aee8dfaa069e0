// Computes prompts for servers that decode, and sends them the pages (page_message.h): the side of `serve --role prefill`. One thread
// speaks with all of them; the engine computes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/inference/kv_identity.h"
#include "trainer/inference/request.h"

namespace meshloom::trainer {

struct PageServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name that has one
  std::uint16_t port = 0;          // 0 = a free one
  std::vector<std::string> keys;   // of which the other side must have one; none = no key
  KVIdentity identity;             // of the engine
  EngineClient* engine = nullptr;  // must have a prefix cache
  std::int64_t page_bytes = 0;     // of the engine
  std::function<void(const std::string&)> note =
      {};                                        // what the operator should know, from the server's thread
  std::chrono::milliseconds hello_time{10'000};  // for the first message of a connection
  std::chrono::milliseconds write_time{
      30'000};                   // in which the other side takes nothing; then it counts as gone
  std::size_t connections = 16;  // more are closed at once
  std::size_t asks = 1024;       // of a connection that have not ended; more are refused
  std::size_t unsent_bytes =
      256 << 20;  // of pages, for all connections together. What goes beyond must be asked for again
};

class PageServer {
 public:
  // Listens, and accepts once it runs. Throws Error when the address cannot be listened on.
  explicit PageServer(PageServerOptions options);
  // The engine must not run any more, or have dropped all requests.
  ~PageServer();

  std::uint16_t port() const;
  // Serves on the calling thread until stop(), which any thread may call.
  void run();
  void stop();

 private:
  class Impl;
  class Peer;
  class Events;
  std::shared_ptr<Impl> impl_;
};

}  // namespace meshloom::trainer
