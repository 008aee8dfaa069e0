// Two engines of one model, one of which computes prompts for the other: the same bits as one alone, whatever the other side does.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <mutex>
#include <thread>

#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/inference/engine_identity.h"
#include "trainer/recipes/recipe.h"
#include "trainer/serve/pages/page_client.h"
#include "trainer/serve/pages/page_message.h"
#include "trainer/serve/pages/page_server.h"

namespace meshloom::tests {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineOptions;
using trainer::KVIdentity;
using trainer::PageClient;
using trainer::PageClientOptions;
using trainer::PageServer;
using trainer::PageServerOptions;
using trainer::Request;

constexpr EngineOptions kOptions{.max_length = 64, .max_sequences = 4, .step_tokens = 32, .page_size = 8};

const layers::ClassTable& classes() {
  static const layers::ClassTable table = trainer::recipe_classes();
  return table;
}

// Prompts that begin alike, and texts behind them.
std::vector<Request> requests_of(int count) {
  const std::vector<std::int32_t> common = random_tokens(40, 1);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.prompt.assign(common.begin(), common.begin() + i * 7 % 40);
    for (const std::int32_t token : random_tokens(1 + i % 13, 100 + static_cast<std::uint64_t>(i)))
      request.prompt.push_back(token);
    request.max_tokens = 6;
    request.top = 2;
    request.sampler.temperature = i % 2;
    request.sampler.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

// An engine on a thread.
class Running {
 public:
  Running(TinyModel& model, const EngineOptions& options)
      : engine(model.engine(options)), identity(kv_identity_of(model.config, model.weights, engine, "cpu")) {}
  ~Running() { stop(); }
  void start() {
    thread_ = std::thread([this] { engine.run(stop_.get_token()); });
  }
  void stop() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  std::vector<std::shared_ptr<RecordedEvents>> answers(const std::vector<Request>& requests) {
    std::vector<std::shared_ptr<RecordedEvents>> heard;
    for (const Request& request : requests) heard.push_back(send(engine, request));
    for (const auto& each : heard) each->reason();
    return heard;
  }

  Engine engine;
  const KVIdentity identity;

 private:
  std::stop_source stop_;
  std::thread thread_;
};

// The side that computes prompts.
class Prefill {
 public:
  explicit Prefill(TinyModel& model, const EngineOptions& options = kOptions,
                   const std::function<void(PageServerOptions&)>& change = {})
      : running_(model, options) {
    PageServerOptions made;
    made.identity = running_.identity;
    made.engine = &running_.engine;
    made.page_bytes = running_.engine.page_bytes();
    if (change) change(made);
    server_ = std::make_unique<PageServer>(std::move(made));
    running_.start();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Prefill() {
    server_->stop();
    thread_.join();
    running_.stop();
  }
  std::uint16_t port() const { return server_->port(); }
  Engine& engine() { return running_.engine; }

 private:
  Running running_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
};

// The side that decodes.
class Decode {
 public:
  Decode(TinyModel& model, std::uint16_t port, const EngineOptions& options = kOptions,
         const std::function<void(PageClientOptions&)>& change = {})
      : running_(model, options) {
    PageClientOptions made;
    made.host = "127.0.0.1";
    made.port = port;
    made.identity = running_.identity;
    made.page_bytes = running_.engine.page_bytes();
    made.retry_time = 20ms;
    made.max_retry_time = 100ms;
    made.note = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(text);
    };
    if (change) change(made);
    client_ = std::make_shared<PageClient>(std::move(made));
    running_.engine.set_kv_connector(client_);
    thread_ = std::thread([client = client_] { client->run(); });
    attempt = client_->first_attempt();
    running_.start();
  }
  ~Decode() {
    running_.stop();
    client_->stop();
    thread_.join();
  }
  auto answers(const std::vector<Request>& requests) { return running_.answers(requests); }
  trainer::KVTransferCounters counters() { return running_.engine.counters().kv_transfer; }
  Engine& engine() { return running_.engine; }
  PageClient& client() { return *client_; }
  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

  PageClient::Attempt attempt;

 private:
  std::mutex mutex_;
  std::vector<std::string> notes_;
  Running running_;
  std::shared_ptr<PageClient> client_;
  std::thread thread_;
};

using Heard = std::vector<std::shared_ptr<RecordedEvents>>;

Heard alone(TinyModel& model, const std::vector<Request>& requests, EngineOptions options = kOptions) {
  options.prefix_cache = false;
  Engine engine = model.engine(options);
  Heard heard;
  for (const Request& request : requests) {
    heard.push_back(send(engine, request));
    finish_all(engine);
  }
  return heard;
}

void expect_same_bits(const Heard& expected, const Heard& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(found[i]->reason(), expected[i]->reason()) << found[i]->error;
    ASSERT_EQ(found[i]->tokens.size(), expected[i]->tokens.size());
    for (std::size_t t = 0; t < found[i]->tokens.size(); ++t) {
      const trainer::TokenScore &a = expected[i]->tokens[t], &b = found[i]->tokens[t];
      ASSERT_EQ(a.id, b.id);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(a.logprob), std::bit_cast<std::uint32_t>(b.logprob));
      ASSERT_EQ(a.top, b.top);
    }
  }
}

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(10ms))
    if (condition()) return true;
  return false;
}

struct PairCase {
  std::string name, dtype, cache;
  friend void PrintTo(const PairCase& pair, std::ostream* out) { *out << pair.name; }
};

class PageTransferWith : public testing::TestWithParam<PairCase> {
 protected:
  PageTransferWith() {
    model.config.dtype = other.config.dtype = GetParam().dtype;
    for (TinyModel* each : {&model, &other})
      if (!GetParam().cache.empty())
        layers::replace(*each->config.model, "PagedCache", GetParam().cache, classes());
  }
  TinyModel model, other;
};

TEST_P(PageTransferWith, GivesTheBitsOfOneEngine) {
  const std::vector<Request> requests = requests_of(24);
  const Heard expected = alone(model, requests);
  EngineOptions options = kOptions;
  options.pages = 128;  // so that all is found again
  EngineOptions computes = options;
  computes.step_tokens = 16;
  computes.max_sequences = 2;
  Prefill prefill(other, computes);
  Decode decode(model, prefill.port(), options);
  EXPECT_TRUE(decode.attempt.connected) << decode.attempt.problem;
  expect_same_bits(expected, decode.answers(requests));
  const trainer::KVTransferCounters counts = decode.counters();
  EXPECT_GT(counts.pages_received, 10);
  EXPECT_EQ(counts.bytes_received, counts.pages_received * decode.engine().page_bytes());
  EXPECT_EQ(counts.fallbacks, 0);
  EXPECT_EQ(counts.refusals, 0);
  EXPECT_EQ(counts.received_tokens, counts.asked_tokens);
  // Once more: all is known here.
  expect_same_bits(expected, decode.answers(requests));
  EXPECT_EQ(decode.counters().asked_tokens, counts.asked_tokens);
  EXPECT_TRUE(eventually(
      [&] { return prefill.engine().counters().kv_transfer.pages_sent == counts.pages_received; }));
  EXPECT_EQ(prefill.engine().counters().pages_in_use, 0);
  EXPECT_EQ(decode.engine().counters().pages_in_use, 0);
}

INSTANTIATE_TEST_SUITE_P(Caches, PageTransferWith,
                         testing::Values(PairCase{"f32", "f32", ""}, PairCase{"bf16", "bf16", ""},
                                         PairCase{"int8", "f32", "PagedCache{codec=Int8Rows{}}"}),
                         [](const auto& info) { return info.param.name; });

// A peer that does what a test says.
class HostilePeer {
 public:
  // Answers one message; returns whether to go on with the connection.
  using Answer = std::function<bool(HostilePeer& peer, const trainer::PageMessage& message)>;

  explicit HostilePeer(const KVIdentity& identity, Answer answer)
      : identity_(identity), answer_(std::move(answer)) {
    listens_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listens_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listens_, 8);
    socklen_t size = sizeof address;
    ::getsockname(listens_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~HostilePeer() {
    stop_ = true;
    ::shutdown(listens_, SHUT_RDWR);
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(listens_);
  }
  std::uint16_t port() const { return port_; }
  int connections() const { return connections_; }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void send(const trainer::PageMessage& message) { send(trainer::encoded(message)); }
  // A page of an ask, with bytes that are not what a model keeps.
  trainer::PageData page(const trainer::PageAsk& ask, std::int64_t index, std::size_t bytes) const {
    const auto size = static_cast<std::size_t>(identity_.page_size),
               at = static_cast<std::size_t>(index) * size;
    trainer::PageData page{ask.id, index, chain_root(identity_), {}, std::vector<std::byte>(bytes)};
    for (std::size_t i = 0; i <= at; i += size)
      page.hash = chain_hash(page.hash, std::span(ask.tokens).subspan(i, size));
    page.tokens.assign(ask.tokens.begin() + static_cast<std::ptrdiff_t>(at),
                       ask.tokens.begin() + static_cast<std::ptrdiff_t>(at + size));
    return page;
  }

 private:
  void run() {
    while (!stop_) {
      const int accepted = ::accept(listens_, nullptr, nullptr);
      if (accepted < 0) return;
      socket_ = accepted;
      ++connections_;
      trainer::PageMessageReader reader(trainer::limits_of_asks(1024));
      char block[4096];
      for (bool goes_on = true; goes_on && !stop_;) {
        const ssize_t got = ::recv(accepted, block, sizeof block, 0);
        if (got <= 0) break;
        reader.add({block, static_cast<std::size_t>(got)});
        while (goes_on) {
          const auto message = reader.next();
          if (!message) break;
          goes_on = answer_(*this, *message);
        }
      }
      ::close(accepted);
    }
  }

  const KVIdentity identity_;
  const Answer answer_;
  int listens_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> socket_{-1}, connections_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Fault {
  const char* name;
  const char* note;  // what the operator reads
  bool refused;      // because of what came
  std::function<bool(HostilePeer& peer, const trainer::PageAsk& ask, std::size_t page_bytes)> answer;
  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }
};

std::vector<Fault> faults() {
  using trainer::PageData;
  using trainer::PageEnd;
  const auto spoilt = [](auto spoil) {
    return [spoil](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t bytes) {
      PageData page = peer.page(ask, ask.first, bytes);
      spoil(page);
      peer.send(page);
      return true;
    };
  };
  return {
      {"TooShort", "a page must have", true, spoilt([](PageData& page) { page.bytes.pop_back(); })},
      {"TooLong", "must have at most", true,
       spoilt([](PageData& page) { page.bytes.resize(page.bytes.size() + 1); })},
      {"OtherTokens", "must be of the tokens that were asked for", true,
       spoilt([](PageData& page) { ++page.tokens[0]; })},
      {"OtherHash", "must be of the tokens that were asked for", true,
       spoilt([](PageData& page) { ++page.hash.low; })},
      {"OtherPage", "pages must come in the order of the prompt", true,
       spoilt([](PageData& page) { ++page.index; })},
      {"OtherAsk", "must be of an ask that has not ended", true,
       spoilt([](PageData& page) { page.id += 1000; })},
      {"Checksum", "must have the checksum of its bytes", true,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t bytes) {
         std::string message = trainer::encoded(peer.page(ask, ask.first, bytes));
         message[message.size() / 2] ^= 1;
         peer.send(message);
         return true;
       }},
      {"Huge", "must have at most", true,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t bytes) {
         std::string message = trainer::encoded(peer.page(ask, ask.first, bytes));
         message.replace(8, 8, std::string(8, '\x7f'));
         peer.send(message);
         return true;
       }},
      {"Truncated", "the connection was closed", false,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t bytes) {
         const std::string message = trainer::encoded(peer.page(ask, ask.first, bytes));
         peer.send(std::string_view(message).substr(0, message.size() / 2));
         return false;
       }},
      {"Gone", "the connection was closed", false,
       [](HostilePeer&, const trainer::PageAsk&, std::size_t) { return false; }},
      {"NoMessage", "must begin with KVP1", true,
       [](HostilePeer& peer, const trainer::PageAsk&, std::size_t) {
         peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
         return true;
       }},
      {"Silent", "does not answer in time", false,
       [](HostilePeer&, const trainer::PageAsk&, std::size_t) { return true; }},
      {"EndsEarly", "all pages must have come", true,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t) {
         peer.send(PageEnd{ask.id, PageEnd::Status::whole, ""});
         return true;
       }},
      {"MoreOfNothing", "", false,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t) {
         peer.send(PageEnd{ask.id, PageEnd::Status::more, ""});
         return true;
       }},
      {"Refuses", "did not compute a prompt: the engine\\x1b is busy", false,
       [](HostilePeer& peer, const trainer::PageAsk& ask, std::size_t) {
         peer.send(PageEnd{ask.id, PageEnd::Status::refused, "the engine\x1b is busy"});
         return true;
       }},
  };
}

// Greets as `honest` would, and answers what is asked by `answer`.
HostilePeer::Answer greeting(const Running& honest,
                             std::function<bool(HostilePeer& peer, const trainer::PageAsk& ask)> answer) {
  return [&honest, answer = std::move(answer)](HostilePeer& peer, const trainer::PageMessage& message) {
    if (std::holds_alternative<trainer::PageHello>(message))
      peer.send(trainer::PageHello{"", honest.identity, 64});
    const auto* ask = std::get_if<trainer::PageAsk>(&message);
    return !ask || answer(peer, *ask);
  };
}

class PageFaults : public testing::TestWithParam<Fault> {};

// Whatever the other side does, texts are those of one engine.
TEST_P(PageFaults, CostOnlyTime) {
  TinyModel model, other;
  const std::vector<Request> requests = requests_of(10);
  const Heard expected = alone(model, requests);
  Running honest(other, kOptions);
  const auto bytes = static_cast<std::size_t>(honest.engine.page_bytes());
  HostilePeer peer(honest.identity, greeting(honest, [&](HostilePeer& self, const trainer::PageAsk& ask) {
                     return GetParam().answer(self, ask, bytes);
                   }));
  Decode decode(model, peer.port(), kOptions, [](PageClientOptions& options) { options.timeout = 200ms; });
  EXPECT_TRUE(decode.attempt.connected);
  expect_same_bits(expected, decode.answers(requests));
  const trainer::KVTransferCounters counts = decode.counters();
  EXPECT_EQ(counts.pages_received, 0);
  EXPECT_GT(counts.fallbacks, 0);
  EXPECT_EQ(counts.refusals > 0, GetParam().refused);
  const std::vector<std::string> notes = decode.notes();
  if (std::string(GetParam().note).empty()) return;
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes[0], HasSubstr(GetParam().note));
  // Of what stays it is said once.
  EXPECT_LE(std::count(notes.begin(), notes.end(), notes[0]), 1);
}

INSTANTIATE_TEST_SUITE_P(Peers, PageFaults, testing::ValuesIn(faults()),
                         [](const auto& info) { return std::string(info.param.name); });

// The negative control: whoever has the right to compute prompts is believed, so that bytes which only look right change the text.
TEST(PageTransfer, PagesAreWhatTextsAreWrittenFrom) {
  TinyModel model, other;
  const std::vector<Request> requests = requests_of(10);
  const Heard expected = alone(model, requests);
  Running honest(other, kOptions);
  const auto bytes = static_cast<std::size_t>(honest.engine.page_bytes());
  HostilePeer peer(honest.identity, greeting(honest, [&](HostilePeer& self, const trainer::PageAsk& ask) {
                     const auto count = static_cast<std::int64_t>(ask.tokens.size()) / kOptions.page_size;
                     for (std::int64_t i = ask.first; i < count; ++i) self.send(self.page(ask, i, bytes));
                     self.send(trainer::PageEnd{ask.id, trainer::PageEnd::Status::whole, ""});
                     return true;
                   }));
  Decode decode(model, peer.port());
  const Heard found = decode.answers(requests);
  EXPECT_GT(decode.counters().pages_received, 0);
  int differ = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t t = 0; t < found[i]->tokens.size(); ++t)
      differ += found[i]->tokens[t].logprob != expected[i]->tokens[t].logprob;
  EXPECT_GT(differ, 0);
}

TEST(PageTransfer, GoesOnWithoutTheOtherSideAndWithItAgain) {
  TinyModel model, other;
  const std::vector<Request> requests = requests_of(12);
  const Heard expected = alone(model, requests);
  auto prefill = std::make_unique<Prefill>(other);
  const std::uint16_t port = prefill->port();
  EngineOptions options = kOptions;
  options.pages = 9;  // so that little is found again
  Decode decode(model, port, options);
  expect_same_bits(expected, decode.answers(requests));
  prefill.reset();
  ASSERT_TRUE(eventually([&] { return !decode.client().connected(); }));
  const std::int64_t before = decode.counters().fallbacks;
  expect_same_bits(expected, decode.answers(requests));
  EXPECT_GT(decode.counters().fallbacks, before);
  prefill = std::make_unique<Prefill>(other, kOptions, [&](PageServerOptions& made) { made.port = port; });
  ASSERT_TRUE(eventually([&] { return decode.client().connected(); }));
  const std::int64_t pages = decode.counters().pages_received;
  expect_same_bits(expected, decode.answers(requests));
  EXPECT_GT(decode.counters().pages_received, pages);
  EXPECT_THAT(decode.notes(), testing::Contains(HasSubstr("computes prompts again")));
}

// Texts that run do not wait for pages that others wait for.
TEST(PageTransfer, OthersGoOnWhileOneWaits) {
  TinyModel model, other;
  Running honest(other, kOptions);
  std::atomic<bool> asked{false};
  HostilePeer peer(honest.identity, greeting(honest, [&](HostilePeer&, const trainer::PageAsk&) {
                     asked = true;
                     return true;
                   }));
  Decode decode(model, peer.port(), kOptions, [](PageClientOptions& options) { options.timeout = 60s; });
  Request waits;
  waits.prompt = random_tokens(40, 9);
  trainer::RequestId id = 0;
  const auto held = send(decode.engine(), waits, &id);
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  Request runs;
  runs.prompt = random_tokens(5, 10);  // less than a page
  runs.max_tokens = 30;
  EXPECT_EQ(send(decode.engine(), runs)->ids().size(), 30u);
  EXPECT_EQ(held->ends, 0);
  decode.engine().cancel(id);
  EXPECT_EQ(held->reason(), trainer::FinishReason::cancelled);
  // A deadline ends a request that waits.
  waits.deadline = std::chrono::steady_clock::now() + 50ms;
  EXPECT_EQ(send(decode.engine(), waits)->reason(), trainer::FinishReason::deadline);
}

// With room for two pages on each side, what is unread waits there or is asked for again.
TEST(PageTransfer, MemoryIsBounded) {
  TinyModel model, other;
  const std::vector<Request> requests = requests_of(24);
  const Heard expected = alone(model, requests);
  const auto two_pages = static_cast<std::size_t>(model.engine(kOptions).page_bytes()) * 2;
  Prefill prefill(other, kOptions, [&](PageServerOptions& options) { options.unsent_bytes = two_pages; });
  Decode decode(model, prefill.port(), kOptions,
                [&](PageClientOptions& options) { options.queue_bytes = two_pages; });
  expect_same_bits(expected, decode.answers(requests));
  EXPECT_GT(decode.counters().pages_received, 0);
  EXPECT_EQ(decode.counters().refusals, 0);
}

TEST(PageTransfer, RefusesAnotherModelAndAnotherKey) {
  TinyModel model, other;
  const auto problem = [&](TinyModel& computes, const EngineOptions& options, std::vector<std::string> keys,
                           const std::string& key) {
    Prefill prefill(computes, options, [&](PageServerOptions& made) { made.keys = std::move(keys); });
    Decode decode(model, prefill.port(), kOptions, [&](PageClientOptions& made) { made.key = key; });
    EXPECT_EQ(decode.attempt.connected, decode.attempt.problem.empty());
    EXPECT_EQ(decode.attempt.differs, !decode.attempt.problem.empty());
    return decode.attempt.problem;
  };
  EXPECT_EQ(problem(other, kOptions, {}, ""), "");
  EXPECT_EQ(problem(other, kOptions, {"one", "two"}, "two"), "");
  EXPECT_EQ(problem(other, kOptions, {"one", "two"}, "three"),
            "refuses this side: the key must be one of the file of this side (--pages-key-file)");
  EXPECT_THAT(problem(other, kOptions, {"one"}, ""), HasSubstr("the key must be"));
  EngineOptions pages = kOptions;
  pages.page_size = 16;
  EXPECT_EQ(problem(other, pages, {}, ""), "must have pages of 8 tokens (--page-size); found 16");
  TinyModel int8;
  layers::replace(*int8.config.model, "PagedCache", "PagedCache{codec=Int8Rows{}}", classes());
  EXPECT_THAT(problem(int8, kOptions, {}, ""), HasSubstr("must serve the same model"));
  TinyModel bf16;
  bf16.config.dtype = "bf16";
  EXPECT_EQ(problem(bf16, kOptions, {}, ""), "must compute in f32; found bf16");
  other.initialize(6);
  EXPECT_THAT(problem(other, kOptions, {}, ""), HasSubstr("must have the same parameters, of hash "));
}

TEST(PageTransfer, TheSideThatComputesRefusesNonsense) {
  TinyModel model;
  Running identity(model, kOptions);
  Prefill prefill(model);
  const auto answer = [&](const std::vector<trainer::PageMessage>& messages, std::string_view raw = {}) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(prefill.port());
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::string bytes(raw);
    for (const trainer::PageMessage& message : messages) bytes += trainer::encoded(message);
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    trainer::PageMessageReader reader(trainer::limits_of_pages(8, identity.engine.page_bytes()));
    std::vector<trainer::PageMessage> found;
    char block[4096];
    for (ssize_t got; (got = ::recv(socket, block, sizeof block, 0)) > 0;) {
      reader.add({block, static_cast<std::size_t>(got)});
      while (auto message = reader.next()) found.push_back(std::move(*message));
      if (!found.empty() && std::holds_alternative<trainer::PageEnd>(found.back())) break;
    }
    ::close(socket);
    return found;
  };
  const trainer::PageHello hello{"", identity.identity, 0};
  const std::vector<std::int32_t> tokens = random_tokens(16, 3);
  const auto ask = [&](std::vector<std::int32_t> asked, std::int64_t first) {
    trainer::ChainHash hash = chain_root(identity.identity);
    for (std::size_t at = 0; at + 8 <= asked.size(); at += 8)
      hash = chain_hash(hash, std::span(asked).subspan(at, 8));
    return trainer::PageAsk{1, first, hash, asked};
  };
  EXPECT_EQ(answer({hello, ask(tokens, 0)}).size(), 4u);  // a greeting, two pages, the end
  EXPECT_EQ(answer({hello, ask(tokens, 1)}).size(), 3u);
  EXPECT_EQ(answer({}, "GET / HTTP/1.1\r\n\r\n").size(), 0u);
  EXPECT_EQ(answer({ask(tokens, 0)}).size(), 0u);
  EXPECT_EQ(answer({hello, hello}).size(), 1u);
  EXPECT_EQ(answer({hello, ask(tokens, 2)}).size(), 1u);
  EXPECT_EQ(answer({hello, ask(random_tokens(15, 3), 0)}).size(), 1u);
  trainer::PageAsk wrong = ask(tokens, 0);
  ++wrong.last.high;
  EXPECT_EQ(answer({hello, wrong}).size(), 1u);
  std::vector<std::int32_t> unknown = tokens;
  unknown[3] = 100000;
  const auto refused = answer({hello, ask(unknown, 0)});
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_THAT(std::get<trainer::PageEnd>(refused[1]).reason,
              HasSubstr("token ids must be below the model's vocabulary"));
}

TEST(PageTransfer, NeedsCachesInPages) {
  TinyModel model;
  layers::replace(*model.config.model, "PagedCache", "ContiguousCache{}", classes());
  Engine engine = model.engine(kOptions);
  EXPECT_THAT(message_of([&] { engine.set_kv_connector(nullptr); }),
              HasSubstr("needs a model whose caches are pages alone to receive pages"));
  Request request;
  request.prompt = random_tokens(16, 1);
  request.max_tokens = 0;
  request.pages_from = 0;
  request.events = std::make_shared<RecordedEvents>();
  EXPECT_THAT(message_of([&] { engine.submit(request); }), HasSubstr("need an engine with a prefix cache"));
  TinyModel paged;
  Engine with_pages = paged.engine(kOptions);
  request.prompt.pop_back();
  EXPECT_THAT(message_of([&] { with_pages.submit(request); }),
              HasSubstr("must be of whole pages of 8 tokens"));
}

}  // namespace
}  // namespace meshloom::tests
