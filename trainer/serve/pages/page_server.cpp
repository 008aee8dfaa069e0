#include "trainer/serve/pages/page_server.h"

#include "trainer/serve/address.h"
#include "trainer/serve/pages/page_connection.h"
#include "trainer/serve/tcp_listener.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>

#include "hal/error.h"
#include "trainer/serve/api_server.h"
#include "trainer/serve/pages/page_message.h"

namespace meshloom::trainer {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

}  // namespace

class PageServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(PageServerOptions given)
      : options(std::move(given)),
        root(chain_root(options.identity)),
        max_tokens(options.engine->max_length() / options.identity.page_size * options.identity.page_size),
        listener_(io, options.host, options.port) {}

  void accept() {
    listener_.accept([this](tcp::socket socket) { connected(std::move(socket)); });
  }
  void stop();
  void remove(const std::shared_ptr<Peer>& peer) { peers_.erase(peer); }
  std::uint16_t port() const { return listener_.port(); }
  void note(const std::string& text) const {
    if (options.note) options.note(text);
  }

  const PageServerOptions options;
  const ChainHash root;
  const std::int64_t max_tokens;
  // Bytes of pages; shared with what is on its way to the thread that sends it.
  const std::shared_ptr<std::atomic<std::size_t>> unsent = std::make_shared<std::atomic<std::size_t>>(0);
  net::io_context io{1};

 private:
  void connected(tcp::socket socket);

  TcpListener listener_;
  std::set<std::shared_ptr<Peer>> peers_;
};

// A server that decodes.
class PageServer::Peer : public std::enable_shared_from_this<Peer> {
 public:
  Peer(Impl& server, tcp::socket socket, std::string name)
      : server_(server),
        name_(std::move(name)),
        connection_(std::make_shared<PageConnection>(std::move(socket), limits_of_asks(server.max_tokens),
                                                     server.options.write_time)),
        hello_deadline_(server.io) {}

  void begin() {
    hello_deadline_.expires_after(server_.options.hello_time);
    hello_deadline_.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (!cancelled && !self->greeted_) self->gone();
    });
    connection_->begin(
        {[self = shared_from_this()](PageMessage message) { self->receive(std::move(message)); },
         [self = shared_from_this()](const std::string& reason, bool refused) {
           if (refused) self->server_.note(self->name_ + ": " + reason);
           self->gone();
         }});
  }

  // The connection has ended, or is to end.
  void gone() {
    hello_deadline_.cancel();
    connection_->close();
    for (const auto& [id, ask] : asks_)
      if (ask.request) server_.options.engine->cancel(*ask.request);
    asks_.clear();
    server_.remove(shared_from_this());
  }

  void send_page(std::uint64_t id, std::int64_t index, std::vector<std::byte> bytes,
                 std::shared_ptr<void> lease) {
    const auto found = asks_.find(id);
    if (found == asks_.end()) return;
    const auto size = static_cast<std::size_t>(server_.options.identity.page_size),
               at = static_cast<std::size_t>(index);
    const std::vector<std::int32_t>& tokens = found->second.tokens;
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(at * size);
    connection_->send(encoded(PageData{id,
                                       index,
                                       found->second.hashes[at],
                                       {first, first + static_cast<std::ptrdiff_t>(size)},
                                       std::move(bytes)}),
                      std::move(lease));
  }
  void send_end(std::uint64_t id, PageEnd::Status status, const std::string& reason) {
    if (asks_.erase(id) > 0) connection_->send(encoded(PageEnd{id, status, reason.substr(0, kMaxReason)}));
  }

 private:
  struct Ask {
    std::vector<std::int32_t> tokens;
    std::vector<ChainHash> hashes;
    std::optional<RequestId> request = {};
  };

  void receive(PageMessage message) {
    if (const auto* hello = std::get_if<PageHello>(&message)) return greet(*hello);
    if (!greeted_) throw Error("message about pages", "a connection must begin with a greeting");
    if (auto* ask = std::get_if<PageAsk>(&message)) return take(std::move(*ask));
    if (const auto* cancel = std::get_if<PageCancel>(&message))
      if (const auto found = asks_.find(cancel->id); found != asks_.end() && found->second.request)
        server_.options.engine->cancel(*found->second.request);
  }

  void greet(const PageHello& hello) {
    if (greeted_) throw Error("message about pages", "a connection must have one greeting", "another");
    bool known = server_.options.keys.empty();
    for (const std::string& key : server_.options.keys) known |= equal_keys(key, hello.key);
    if (!known) return refuse("the key must be one of the file of this side (--pages-key-file)");
    greeted_ = true;
    hello_deadline_.cancel();
    connection_->send(encoded(PageHello{"", server_.options.identity, server_.max_tokens}));
    if (const KVDifference difference = difference_of(server_.options.identity, hello.identity);
        !difference.rule.empty())
      refuse("the other side " + difference.rule + "; found " + difference.found);
  }

  void refuse(const std::string& reason) {
    server_.note(name_ + " was refused: " + reason);
    connection_->refuse(reason);
  }

  void take(PageAsk ask) {
    if (ask.id <= last_id_)
      throw Error("message about pages", "an ask must have a number above those before");
    last_id_ = ask.id;
    const std::int64_t size = server_.options.identity.page_size,
                       count = static_cast<std::int64_t>(ask.tokens.size());
    if (count == 0 || count % size != 0 || ask.first >= count / size)
      throw Error("message about pages",
                  "an ask must be of whole pages of " + std::to_string(size) + " tokens",
                  std::to_string(count) + " tokens, from page " + std::to_string(ask.first));
    Ask& asked = asks_[ask.id];
    if (asks_.size() > server_.options.asks)
      return send_end(ask.id, PageEnd::Status::refused, "too many prompts are asked for");
    ChainHash hash = server_.root;
    for (std::int64_t at = 0; at < count; at += size)
      asked.hashes.push_back(
          hash = chain_hash(
              hash,
              std::span(ask.tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size))));
    if (hash != ask.last)
      throw Error("message about pages", "an ask must have the hash of its tokens", "another");
    asked.tokens = std::move(ask.tokens);
    submit(ask.id, ask.first, asked);
  }

  void submit(std::uint64_t id, std::int64_t first, Ask& asked);

  Impl& server_;
  const std::string name_;
  std::shared_ptr<PageConnection> connection_;
  net::steady_timer hello_deadline_;
  bool greeted_ = false;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Ask> asks_;  // that have not ended
};

// Of one ask; called on the engine's thread.
class PageServer::Events : public RequestEvents {
 public:
  Events(std::shared_ptr<Impl> server, std::weak_ptr<Peer> peer, std::uint64_t id)
      : server_(std::move(server)), peer_(std::move(peer)), id_(id) {}

  bool on_page(std::int64_t index, std::vector<std::byte> bytes) override {
    const std::size_t size = bytes.size();
    const std::shared_ptr<std::atomic<std::size_t>>& unsent = server_->unsent;
    if (unsent->fetch_add(size) + size > server_->options.unsent_bytes) {
      *unsent -= size;
      return false;
    }
    const std::shared_ptr<void> lease(nullptr, [unsent, size](void*) { *unsent -= size; });
    auto held = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    post([id = id_, index, held, lease](Peer& peer) { peer.send_page(id, index, std::move(*held), lease); });
    return true;
  }
  bool on_token(const TokenScore&) override { return false; }
  void on_finish(FinishReason reason, const Usage&, const std::string& error) override {
    const PageEnd::Status status = reason == FinishReason::length ? PageEnd::Status::whole
                                   : reason == FinishReason::stop ? PageEnd::Status::more
                                                                  : PageEnd::Status::refused;
    const std::string why =
        status == PageEnd::Status::refused && error.empty() ? std::string(to_string(reason)) : error;
    post([id = id_, status, why](Peer& peer) { peer.send_end(id, status, why); });
  }

 private:
  template <typename Call>
  void post(Call call) {
    net::post(server_->io, [peer = peer_, call] {
      if (const auto there = peer.lock()) call(*there);
    });
  }

  std::shared_ptr<Impl> server_;
  std::weak_ptr<Peer> peer_;
  std::uint64_t id_;
};

void PageServer::Peer::submit(std::uint64_t id, std::int64_t first, Ask& asked) {
  Request request;
  request.prompt = asked.tokens;
  request.max_tokens = 0;
  request.pages_from = first;
  request.events = std::make_shared<Events>(server_.shared_from_this(), weak_from_this(), id);
  try {
    asked.request = server_.options.engine->submit(std::move(request));
  } catch (
      const std::exception& error) {  // it is busy, the tokens are not the model's, or the device is lost
    send_end(id, PageEnd::Status::refused, error.what());
  }
}

void PageServer::Impl::connected(tcp::socket socket) {
  if (peers_.size() >= options.connections) return;
  error_code unknown;
  const tcp::endpoint from = socket.remote_endpoint(unknown);
  const std::string name =
      unknown ? "a side that decodes" : address_text(from.address().to_string(), from.port());
  const auto peer = std::make_shared<Peer>(*this, std::move(socket), name);
  peers_.insert(peer);
  peer->begin();
}

// Then nothing is left to do, and run() returns.
void PageServer::Impl::stop() {
  listener_.close();
  const auto all = peers_;
  for (const auto& peer : all) peer->gone();
}

PageServer::PageServer(PageServerOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {
  impl_->accept();
}
PageServer::~PageServer() = default;
std::uint16_t PageServer::port() const { return impl_->port(); }
void PageServer::run() { impl_->io.run(); }
void PageServer::stop() {
  net::post(impl_->io, [impl = impl_.get()] { impl->stop(); });
}

}  // namespace meshloom::trainer
