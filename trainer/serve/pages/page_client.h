// Gets the pages of prompts from a server that computes them (page_message.h): the side of `serve --role decode`. One thread speaks with the
// other side. Whatever that does costs time alone: what is not as it must be ends the connection, and prompts are then computed here
// until it answers again, which is tried after 1 s, 2 s, ... 30 s.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "trainer/inference/kv_connector.h"
#include "trainer/inference/kv_identity.h"

namespace meshloom::trainer {

struct PageClientOptions {
  std::string host;
  std::uint16_t port = 0;
  std::string key;              // that the other side wants; "" = none
  KVIdentity identity;          // of the engine
  std::int64_t page_bytes = 0;  // of the engine
  std::function<void(const std::string&)> note =
      {};                                         // what the operator should know, from the client's thread
  std::chrono::milliseconds connect_time{5'000};  // until both sides have greeted each other
  std::chrono::milliseconds timeout{
      30'000};  // for all pages of a prompt; the engine computes those that are missing
  std::chrono::milliseconds retry_time{1'000}, max_retry_time{30'000};
  std::chrono::milliseconds write_time{10'000};
  std::size_t asks = 1024;             // at once; the engine computes the prompts of more
  std::size_t queue_bytes = 64 << 20;  // of pages that the engine has not taken; then no more are read
};

class PageClient : public KVConnector {
 public:
  explicit PageClient(PageClientOptions options);
  ~PageClient() override;

  // Connects, and serves the engine, on the calling thread, until stop(), which any thread may call. Then nothing can be asked any more,
  // and what was asked has ended.
  void run();
  void stop();

  struct Attempt {
    bool connected = false;
    bool differs = false;  // the two sides can never work together as they are
    std::string problem;   // "" = none
  };
  // Waits for the outcome of the first attempt to connect, for which run() must run.
  Attempt first_attempt() const;

  void when_arrived(std::function<void()> wake) override;
  bool ask(std::uint64_t request, std::span<const std::int32_t> tokens, std::int64_t first) override;
  void cancel(std::uint64_t request) override;
  KVArrivals take(std::size_t max_bytes) override;
  bool connected() const override;
  std::int64_t refusals() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshloom::trainer
