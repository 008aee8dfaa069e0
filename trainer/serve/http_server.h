// An HTTP/1.1 server for requests that may take minutes: whole and streamed responses, a deadline for each phase, limits for
// what a client may send or leave unread, and the news that a client went away. One thread runs all of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::trainer {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or a name that has one
  std::uint16_t port = 0;          // 0 = a free one
  std::chrono::milliseconds header_time{
      10'000};  // from a request's first byte to the end of its header; then 408
  std::chrono::milliseconds body_time{30'000};  // from there to the end of its body; then 408
  std::chrono::milliseconds idle_time{60'000};  // between requests; then the connection is closed
  std::chrono::milliseconds write_time{
      30'000};  // in which a client takes nothing of a response; then it counts as gone
  std::chrono::milliseconds drain_time{
      30'000};                          // for running requests after shut_down(); then they are dropped
  std::size_t header_bytes = 16 << 10;  // more is 431
  std::size_t body_bytes = 8 << 20;     // more is 413
  std::size_t unsent_bytes =
      256 << 10;                   // of a streamed response; a client that leaves more unread counts as gone
  std::size_t connections = 1024;  // more are answered with 503
};

struct HttpRequest {
  std::string method;       // "GET" also where it was HEAD, whose response is sent without its body
  std::string path, query;  // the target before and after its '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  // The first header of this name (lower case); null = none.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The answer to one request. To be used on the server's thread, for one whole response or one streamed one. Calls after the
// response has ended, or for a client that is gone, do nothing. A reply that is destroyed before its response has ended closes the
// connection.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpResponse response) = 0;
  // A streamed response: its head (`head.body` is its first part), further parts, and its end.
  virtual void start(const HttpResponse& head) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end() = 0;
  // Called once, from the server's loop and never from within another call, when the client goes away before the response
  // has ended. Setting an empty function forgets the one before.
  virtual void when_gone(std::function<void()> call) = 0;
};

class HttpServer {
 public:
  struct Hooks {
    // Called when the header of a request is there, whose body is still empty. A response refuses the request before its body
    // is read. Optional.
    std::function<std::optional<HttpResponse>(const HttpRequest& request)> admit;
    // Called with each whole request. What it throws is answered with 500.
    std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)> handle;
    // The body of a response to what is wrong with the HTTP of a request, as JSON. Optional.
    std::function<std::string(int status, const std::string& message)> error_body;
  };

  // Listens, and accepts once it runs. Throws Error when the address cannot be listened on.
  HttpServer(HttpOptions options, Hooks hooks);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  // Serves on the calling thread until shut_down() was called and no connection is left.
  void run();
  // From any thread: accepts no more connections, answers new requests with 503, lets running ones end or `drain_time` pass.
  void shut_down();
  // Runs a function on the server's thread; to be called from any thread, and harmless when the server is gone.
  using Post = std::function<void(std::function<void()>)>;
  Post post() const;

 private:
  class Impl;
  class Connection;
  class Reply;
  std::shared_ptr<Impl> impl_;
};

// "Too Many Requests".
std::string_view reason_of(int status);

}  // namespace meshloom::trainer
