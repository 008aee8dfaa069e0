// A request that runs: it asks the engine for each choice, and turns the tokens into one response or a stream of events.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/inference/text_stream.h"
#include "trainer/serve/api_error.h"
#include "trainer/serve/api_request.h"
#include "trainer/serve/api_response.h"
#include "trainer/serve/http_server.h"
#include "trainer/serve/metrics.h"
#include "trainer/serve/tools/tool_reader.h"

namespace meshloom::trainer {

// Of the server's thread; the engine's events are posted to it.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Dependencies {
    const ServedModel& model;
    const TokenTexts& texts;
    Metrics& metrics;
    HttpServer::Post post;
    std::function<void(const std::string&)> lost;  // ApiServerOptions::lost
  };
  // `head` has the headers of the response.
  Generation(ApiRequest request, Dependencies dependencies, std::shared_ptr<HttpReply> reply,
             HttpResponse head);
  // Submits every choice. Throws ApiError when the engine refuses one; then none runs.
  void begin();

 private:
  class Events;
  using Time = std::chrono::steady_clock::time_point;
  struct Choice {
    std::size_t prompt = 0;
    RequestId id = 0;
    std::shared_ptr<std::atomic<bool>> enough =
        std::make_shared<std::atomic<bool>>(false);  // the engine may end it
    std::unique_ptr<TextStream> stream;
    std::unique_ptr<ToolReader> reader;  // none = there are no tools
    std::int64_t calls = 0;              // of tools, so far
    ChoicePart part;                     // all of it, or what was not sent yet
    std::int64_t echoed_characters = 0;  // of the prompt, where the text begins with it
    std::int64_t characters = 0;         // of the text so far, to the stop string
    Usage usage;
    Time last{};  // when its last token came; none = the epoch
    bool echoed = false, ended = false;
  };

  void add_choice(std::size_t prompt, std::int64_t k);
  void echo(Choice& choice, std::span<const TokenScore> scores);
  void token(Choice& choice, const TokenScore& score, Time time);
  void text(Choice& choice, std::string more);
  void add_part(Choice& choice, ToolReader::Part part);
  void finish(Choice& choice, FinishReason reason, const Usage& usage, const std::string& error);
  void complete();
  // Cancels what runs; nothing more is sent after `error`.
  void fail(const ApiError& error);
  void abandon();
  void send_part(Choice& choice);
  void send_chunk(const Choice& choice);
  void send_event(const ResponseJson& json);
  Usage total() const;
  // Calls it, and fails the request with what it throws.
  void guard(const std::function<void()>& call);

  const ApiRequest request_;
  const Dependencies dependencies_;
  const std::shared_ptr<HttpReply> reply_;
  HttpResponse head_response_;
  ResponseHead head_;
  const Time begun_;
  std::vector<Choice> choices_;
  std::size_t ended_ = 0;
  bool over_ = false;  // nothing more is to be sent
};

}  // namespace meshloom::trainer
