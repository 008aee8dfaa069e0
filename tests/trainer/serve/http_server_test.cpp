// The HTTP of the server over real sockets: limits, deadlines, streams, clients that vanish, and its end.
#include "trainer/serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "hal/error.h"
#include "tests/message_of.h"
#include "tests/trainer/serve/client.h"

namespace meshloom::tests {
namespace {

using namespace std::chrono_literals;
using trainer::HttpOptions;
using trainer::HttpReply;
using trainer::HttpRequest;
using trainer::HttpResponse;
using trainer::HttpServer;

// Routes: /echo gives the body, /hold waits for release(), /stream writes until its client is gone, /throw throws.
class TestServer {
 public:
  explicit TestServer(HttpOptions options = {})
      : server_(options, {[this](const HttpRequest& request) { return admit(request); },
                          [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                            handle(std::move(request), std::move(reply));
                          },
                          [](int status, const std::string& message) {
                            return std::to_string(status) + " " + message;
                          }}),
        thread_([this] { server_.run(); }) {}
  ~TestServer() { stop(); }

  void stop() {
    server_.shut_down();
    if (thread_.joinable()) thread_.join();
  }
  std::uint16_t port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  // Answers what /hold holds.
  void release() {
    server_.post()([this] {
      for (const auto& reply : held_) reply->send({200, "released"});
      held_.clear();
    });
  }
  void wait_for_held(int count) {
    while (held < count) std::this_thread::sleep_for(1ms);
  }
  std::future<void> gone() { return gone_.get_future(); }

  std::atomic<int> held = 0, handled = 0;

 private:
  static std::optional<HttpResponse> admit(const HttpRequest& request) {
    if (request.path == "/forbidden") return HttpResponse{403, "no"};
    return {};
  }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
    ++handled;
    if (request.path == "/throw") throw std::runtime_error("planted");
    if (request.path == "/drop") return;
    if (request.path == "/hold") {
      held_.push_back(reply);
      reply->when_gone([this] { gone_.set_value(); });
      ++held;
    } else if (request.path == "/stream") {
      reply->start({200, "first ", "text/event-stream"});
      const auto going = std::make_shared<bool>(true);
      reply->when_gone([this, going] {
        *going = false;
        gone_.set_value();
      });
      write_on(reply, going, request.query == "large" ? std::string(8192, 'x') : "more ");
    } else if (request.path == "/parts") {
      reply->start({200, "one "});
      reply->write("two ");
      reply->write("");
      reply->write("three");
      reply->end();
      reply->write("after the end");
    } else {
      reply->send({200,
                   request.method + " " + request.query + " " + request.body,
                   "text/plain",
                   {{"x-line", "a\r\nb"}}});
    }
  }
  void write_on(std::shared_ptr<HttpReply> reply, std::shared_ptr<bool> going, std::string part) {
    if (!*going) return;
    reply->write(part);
    server_.post()([=, this] { write_on(reply, going, part); });
  }

  std::vector<std::shared_ptr<HttpReply>> held_;
  std::promise<void> gone_;
  HttpServer server_;
  std::thread thread_;
};

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  TestServer server;
  Client client(server.port());
  client.request("POST", "/echo?a=b", "body");
  Answer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST a=b body");
  EXPECT_EQ(answer.header("connection"), "");
  EXPECT_EQ(answer.header("x-line"), "a??b");
  client.request("GET", "/echo");
  EXPECT_EQ(client.answer().body, "GET  ");
  // pipelined
  client.send("GET /echo?1 HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?2 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.answer().body, "GET 1 ");
  EXPECT_EQ(client.answer().body, "GET 2 ");
  client.request("GET", "/echo", "", "Connection: close\r\n");
  answer = client.answer();
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, ByteByByte) {
  TestServer server;
  Client client(server.port());
  for (const char c : std::string("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                  "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"))
    ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.answer().body, "POST  abcde");
}

TEST(HttpServer, WholeUrisAreTargetsToo) {
  TestServer server;
  Client client(server.port());
  for (const auto& [target, body] : {std::pair{"http://x/echo?a=b", "GET a=b "},
                                     {"HTTP://x:80/echo", "GET  "},
                                     {"https://user@x/echo?http://y", "GET http://y "},
                                     {"http://x?a=b", "GET a=b "},
                                     {"http://x", "GET  "},
                                     {"http://", "GET  "}}) {
    client.request("GET", target);
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, 200) << target;
    EXPECT_EQ(answer.body, body) << target;
  }
  client.request("GET", "http://x/forbidden");
  EXPECT_EQ(client.answer().status, 403);
}

TEST(HttpServer, HeadHasNoBody) {
  TestServer server;
  Client client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?next HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(client.read_until("GET next "));
}

TEST(HttpServer, Streams) {
  TestServer server;
  Client client(server.port());
  client.request("GET", "/parts");
  Answer answer = client.answer();
  EXPECT_EQ(answer.body, "one two three");
  EXPECT_EQ(answer.header("transfer-encoding"), "chunked");
  client.request("GET", "/echo");
  EXPECT_EQ(client.answer().status, 200) << "the connection goes on";
  client.send("GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  answer = client.answer();
  EXPECT_EQ(answer.body, "one two three") << "HTTP/1.0: until the connection ends";
  EXPECT_EQ(answer.header("transfer-encoding"), "");
}

TEST(HttpServer, ContinuesWhenAsked) {
  TestServer server;
  Client client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send("ab");
  EXPECT_EQ(client.answer().body, "POST  ab");
}

TEST(HttpServer, RefusesBeforeTheBody) {
  TestServer server;
  Client client(server.port());
  client.send("POST /forbidden HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);
  EXPECT_EQ(server.handled, 0);
}

TEST(HttpServer, WhatIsNoValidRequest) {
  TestServer server;
  const std::string host = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  const std::vector<std::pair<std::string, int>> cases{
      {"nonsense\r\n\r\n", 400},
      {"GET /echo\r\n\r\n", 400},
      {"GET /echo HTTP/3.7\r\nHost: x\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},                        // no Host
      {"GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},  // two
      {"GET /echo HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost : x\r\n\r\n", 400},  // space before the colon
      {host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {host + "Content-Length: 3, 4\r\n\r\nabcd", 400},
      {host + "Content-Length: -1\r\n\r\n", 400},
      {host + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {host + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {host + "Transfer-Encoding: gzip\r\n\r\nabc", 400},
      {host + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", 400},
      {host + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(200'000, 'a'), 400},
      {host + "Content-Length: 8388609\r\n\r\n", 413},
      {host + "Transfer-Encoding: chunked\r\n\r\n800001\r\n", 413},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n", 431},
      {"GET /" + std::string(20'000, 'a'), 431},
  };
  for (const auto& [bytes, status] : cases) {
    Client client(server.port());
    client.send(bytes);
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 150);
    EXPECT_EQ(answer.body.substr(0, 4), std::to_string(status) + " ") << bytes.substr(0, 150);
    EXPECT_TRUE(client.closed()) << bytes.substr(0, 150);
  }
  EXPECT_EQ(server.handled, 0);
}

TEST(HttpServer, ALargeBodyIsRead) {
  TestServer server;
  const std::string body(8 << 20, 'b');
  const Answer answer = ask(server.port(), "POST", "/echo", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.size(), body.size() + 6);
}

TEST(HttpServer, DeadlinesOfHeaderBodyAndIdleness) {
  HttpOptions options;
  options.header_time = options.body_time = options.idle_time = 50ms;
  TestServer server(options);
  Client slow_header(server.port()), slow_body(server.port()), idle(server.port());
  slow_header.send("G");
  slow_body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na");
  EXPECT_EQ(slow_header.answer().status, 408);
  EXPECT_EQ(slow_body.answer().status, 408);
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(server.handled, 0);
}

TEST(HttpServer, TooManyConnectionsAreTold) {
  HttpOptions options;
  options.connections = 2;
  TestServer server(options);
  Client one(server.port()), two(server.port());
  one.request("GET", "/echo");
  two.request("GET", "/echo");
  EXPECT_EQ(one.answer().status, 200);
  EXPECT_EQ(two.answer().status, 200);
  EXPECT_EQ(ask(server.port(), "GET", "/echo").status, 503);
  one.request("GET", "/echo");
  EXPECT_EQ(one.answer().status, 200);
}

TEST(HttpServer, AClientThatVanishesWhileItsAnswerIsAwaited) {
  for (const bool reset : {false, true}) {
    TestServer server;
    auto gone = server.gone();
    Client client(server.port());
    client.request("GET", "/hold");
    server.wait_for_held(1);
    reset ? client.reset() : client.close();
    EXPECT_EQ(gone.wait_for(20s), std::future_status::ready);
    server.release();  // nobody is there
    EXPECT_EQ(ask(server.port(), "GET", "/echo").status, 200);
  }
}

TEST(HttpServer, AClientThatVanishesWhileItsAnswerIsStreamed) {
  TestServer server;
  auto gone = server.gone();
  Client client(server.port());
  client.request("GET", "/stream");
  ASSERT_TRUE(client.read_until("more "));
  client.close();
  EXPECT_EQ(gone.wait_for(20s), std::future_status::ready);
}

TEST(HttpServer, AClientThatDoesNotReadIsDropped) {
  TestServer server;
  auto gone = server.gone();
  Client client(server.port());
  client.request("GET", "/stream?large");
  EXPECT_EQ(gone.wait_for(20s), std::future_status::ready);
}

TEST(HttpServer, AClientThatTakesNothingOfAWholeResponseIsDropped) {
  HttpOptions options;
  options.write_time = 50ms;
  TestServer server(options);
  Client client(server.port());
  client.request("POST", "/echo", std::string(8 << 20, 'b'));
  while (server.handled < 1) std::this_thread::sleep_for(1ms);
  server.stop();  // ends only because the client was dropped
}

TEST(HttpServer, AFailingHandlerIsAnswered) {
  TestServer server;
  Answer answer = ask(server.port(), "GET", "/throw");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, "500 planted");
  EXPECT_EQ(ask(server.port(), "GET", "/drop").status, 0)
      << "a reply that was forgotten closes the connection";
}

TEST(HttpServer, RunningRequestsEndBeforeTheServer) {
  TestServer server;
  Client running(server.port()), idle(server.port()), partial(server.port());
  running.request("GET", "/hold");
  partial.send("GET /echo HTTP/1.1\r\n");
  server.wait_for_held(1);
  server.server().shut_down();
  EXPECT_TRUE(idle.closed());
  partial.send("Host: x\r\n\r\n");
  EXPECT_EQ(partial.answer().status, 503);
  Client late(server.port());
  late.request("GET", "/echo");
  EXPECT_EQ(late.answer().status, 0);
  server.release();
  const Answer answer = running.answer();
  EXPECT_EQ(answer.body, "released");
  EXPECT_EQ(answer.header("connection"), "close");
  running.close();
  partial.close();
  server.stop();
}

TEST(HttpServer, RunningRequestsThatDoNotEndAreDropped) {
  HttpOptions options;
  options.drain_time = 50ms;
  TestServer server(options);
  auto gone = server.gone();
  Client running(server.port());
  running.request("GET", "/hold");
  server.wait_for_held(1);
  server.stop();
  EXPECT_EQ(gone.wait_for(0s), std::future_status::ready);
  EXPECT_TRUE(running.closed());
}

TEST(HttpServer, AnAddressThatIsTakenIsAnError) {
  TestServer server;
  HttpOptions options;
  options.port = server.port();
  EXPECT_THAT(message_of([&] { TestServer other(options); }), testing::HasSubstr("that can be listened on"));
  options.host = "no such host.";
  EXPECT_THAT(message_of([&] { TestServer other(options); }),
              testing::HasSubstr("must be an address of this machine"));
}

TEST(HttpServer, SlowConnectionsDoNotStopOthers) {
  TestServer server;
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<Client>(server.port()));
    slow.back()->send("G");
  }
  EXPECT_EQ(ask(server.port(), "GET", "/echo").status, 200);
}

}  // namespace
}  // namespace meshloom::tests
