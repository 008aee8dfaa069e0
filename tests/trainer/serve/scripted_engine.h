// An engine that writes what a test says, on a thread of its own, and a server before it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/serve/client.h"
#include "trainer/data/input_config.h"
#include "trainer/inference/request.h"
#include "trainer/serve/api_server.h"

namespace meshloom::tests {

class ScriptedEngine : public trainer::EngineClient {
 public:
  explicit ScriptedEngine(std::int64_t max_length = 200);
  ~ScriptedEngine() override;

  trainer::RequestId submit(trainer::Request request) override;
  void cancel(trainer::RequestId id) override;
  trainer::EngineCounters counters() const override;
  std::int64_t max_length() const override { return max_length_; }
  std::int64_t max_source() const override { return max_source_; }
  std::int64_t vocabulary() const override { return 256; }
  std::int64_t embedding_size() const override { return embedding_size_; }

  // What is written, in bytes, before the end token 0; as long as it is set, each request writes its own number first.
  void say(std::string text);
  void fail_with(std::string error);    // requests end with this error after their first token
  void refuse_with(std::string error);  // submit() throws Error
  void lose_device();                   // submit() throws DeviceLost
  void busy_after(int requests);        // submit() throws EngineBusy
  void hold(bool held);                 // nothing is written meanwhile
  // 3 to begin with. An embedding is the first token, the number of tokens, and zeros.
  void set_embedding_size(std::int64_t size) { embedding_size_ = size; }
  // As of a model with an encoder, before ScriptedServer::set_model().
  void set_max_source(std::int64_t tokens) { max_source_ = tokens; }
  std::vector<trainer::Request> requests() const;
  // Waits until so many requests have come, or were cancelled.
  void wait_for_requests(std::size_t count);
  void wait_for_cancelled(std::size_t count);

 private:
  struct Active {
    trainer::RequestId id;
    trainer::Request request;
    std::string text;
    trainer::Usage usage;
    std::int64_t written = -1;  // -1 = the prompt is not yet scored
  };
  void run();
  // Returns whether the request goes on.
  bool step(Active& active, bool cancelled, const std::string& error);

  const std::int64_t max_length_;
  std::atomic<std::int64_t> embedding_size_{3}, max_source_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Active> submitted_;
  std::set<trainer::RequestId> cancelled_;
  std::vector<trainer::Request> seen_;
  std::size_t cancels_ = 0;
  std::string text_ = "hello", error_, refusal_;
  int room_ = -1;
  bool held_ = false, stop_ = false, lost_ = false;
  trainer::RequestId last_ = 0;
  trainer::EngineCounters counters_;
  std::thread thread_;
};

// A server of the model "test", whose tokens are bytes, before a scripted engine.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> keys = {}, bool ready = true,
                          trainer::HttpOptions http = {});
  // With a chat template, and room for what it says.
  struct TemplateFile {
    std::string path;
  };
  explicit ScriptedServer(const TemplateFile& chat_template);
  ~ScriptedServer();
  void set_model();
  void stop();
  std::uint16_t port() const { return server_->port(); }
  Answer post(const std::string& path, const std::string& body, const std::string& headers = {}) const {
    return ask(port(), "POST", path, body, headers);
  }
  Answer get(const std::string& path) const { return ask(port(), "GET", path); }

  ScriptedEngine engine;
  std::vector<std::string> notes, lost;  // of the server's thread: to be read after stop()
  trainer::ApiServer& server() { return *server_; }

 private:
  void start(std::vector<std::string> keys, trainer::HttpOptions http);

  trainer::BytesConfig tokens_;
  std::unique_ptr<trainer::Tokenizer> tokenizer_ = tokens_.make();
  std::unique_ptr<trainer::ChatFormat> chat_;
  std::unique_ptr<trainer::ApiServer> server_;
  std::thread thread_;
};

}  // namespace meshloom::tests
