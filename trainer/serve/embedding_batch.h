// A request for embeddings that runs: it asks the engine for that of each input, and makes one response of them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/serve/api_error.h"
#include "trainer/serve/embedding_request.h"
#include "trainer/serve/http_server.h"
#include "trainer/serve/metrics.h"

namespace meshloom::trainer {

// The first `dimensions` numbers of an embedding, at length 1; zeros stay zeros.
std::vector<float> normalized(std::span<const float> embedding, std::int64_t dimensions);
// Bytes in base64 (RFC 4648, with padding).
std::string base64(std::span<const std::byte> bytes);

// Of the server's thread; the engine's events are posted to it.
class EmbeddingBatch : public std::enable_shared_from_this<EmbeddingBatch> {
 public:
  struct Dependencies {
    const ServedModel& model;
    Metrics& metrics;
    HttpServer::Post post;
    std::function<void(const std::string&)> lost;  // ApiServerOptions::lost
  };
  // `head` has the headers of the response.
  EmbeddingBatch(EmbeddingRequest request, Dependencies dependencies, std::shared_ptr<HttpReply> reply,
                 HttpResponse head);
  // Submits the first inputs; others follow as these end. Throws ApiError when the engine refuses the first one; then none runs.
  void begin();

 private:
  class Events;
  void submit_more();
  void take(std::size_t input, std::span<const float> embedding);
  void finish(std::size_t input, FinishReason reason, const Usage& usage, const std::string& error);
  void complete();
  // Cancels what runs and answers with the error.
  void fail(const ApiError& error);
  void abandon();
  // Calls it, and fails the request with what it throws.
  void guard(const std::function<void()>& call);

  const EmbeddingRequest request_;
  const Dependencies dependencies_;
  const std::shared_ptr<HttpReply> reply_;
  HttpResponse response_;
  const std::chrono::steady_clock::time_point begun_;
  std::vector<std::string> shown_;            // the embeddings as the response has them
  std::map<std::size_t, RequestId> running_;  // by input
  std::size_t next_ = 0;                      // input to be submitted
  std::int64_t cached_tokens_ = 0;
  bool over_ = false;  // nothing more is to be sent
};

}  // namespace meshloom::trainer
