#include "trainer/serve/pages/page_client.h"

#include "trainer/serve/address.h"
#include "trainer/serve/pages/page_connection.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "hal/error.h"
#include "trainer/serve/pages/page_message.h"

namespace meshloom::trainer {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

}  // namespace

class PageClient::Impl {
 public:
  explicit Impl(PageClientOptions given)
      : options(std::move(given)),
        name_("prefill " + address_text(options.host, options.port)),
        root_(chain_root(options.identity)),
        resolver_(io),
        attempt_deadline_(io),
        retry_(io),
        ask_deadline_(io),
        retry_time_(options.retry_time) {}

  // Of the client's thread.
  void connect();
  void shut_down();
  void ask(std::uint64_t request, std::vector<std::int32_t> tokens, std::int64_t first);
  void cancel(std::uint64_t request);
  void read_on() {
    paused_ = false;
    if (connection_) connection_->pause(false);
  }

  // From any thread.
  KVArrivals take(std::size_t max_bytes);
  void forget(std::uint64_t request);
  Attempt first_attempt() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return attempt_.has_value(); });
    return *attempt_;
  }

  const PageClientOptions options;
  net::io_context io{1};
  std::atomic<bool> connected{false}, paused_{false};
  std::atomic<std::int64_t> refusals{0}, max_pages{0};
  std::atomic<std::size_t> outstanding{0};  // asks that have not ended
  std::mutex wake_mutex;
  std::function<void()> wake;

 private:
  struct Ask {
    std::uint64_t request;
    std::vector<std::int32_t> tokens;
    std::vector<ChainHash> hashes;  // of the pages
    std::int64_t first, next,
        end;  // pages: since the other side was asked last, the next one, and behind the last
    steady_clock::time_point since, deadline;
    bool dropped = false;  // the engine waits for it no more
  };
  struct Arrival {
    KVPage page;
    bool ends;  // the request ends, and there is no page
  };

  void receive(PageMessage message);
  void greet(const PageHello& hello);
  void take_page(PageData page);
  void take_end(const PageEnd& end);
  void lose(const std::string& reason, bool refused, bool differs = false);
  void settle(Attempt attempt);
  void say(const std::string& reason);
  void send(std::uint64_t id, Ask& ask);
  void end(Ask& ask);
  void arrive(Arrival arrival);
  void arm();
  void look_at_deadlines();

  const std::string name_;
  const ChainHash root_;
  tcp::resolver resolver_;
  net::steady_timer attempt_deadline_, retry_, ask_deadline_;
  std::shared_ptr<tcp::socket> socket_;  // that connects
  std::shared_ptr<PageConnection> connection_;
  std::uint64_t attempts_ = 0;
  bool stopping_ = false, tried_ = false;
  milliseconds retry_time_;
  std::string said_;  // the last problem, until pages have come again
  std::map<std::uint64_t, Ask> asks_;
  std::uint64_t last_id_ = 0;
  steady_clock::time_point heard_;  // of the other side

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Attempt> attempt_;  // the first
  std::deque<Arrival> arrived_;
  std::size_t queued_ = 0;  // bytes of arrived_
};

void PageClient::Impl::settle(Attempt attempt) {
  const std::lock_guard lock(mutex_);
  if (!attempt_) attempt_ = std::move(attempt);
  changed_.notify_all();
}

// One that stays is said once.
void PageClient::Impl::say(const std::string& reason) {
  if (said_ == reason) return;
  said_ = reason;
  if (options.note) options.note(name_ + ": " + reason + "; prompts are computed here meanwhile");
}

void PageClient::Impl::connect() {
  if (stopping_) return;
  const std::uint64_t attempt = ++attempts_;
  attempt_deadline_.expires_after(options.connect_time);
  attempt_deadline_.async_wait([this, attempt](const error_code& cancelled) {
    if (!cancelled && attempt == attempts_ && !connected) lose("does not answer", false);
  });
  resolver_.async_resolve(
      options.host, std::to_string(options.port),
      [this, attempt](const error_code& failed, const tcp::resolver::results_type& found) {
        if (attempt != attempts_ || stopping_) return;
        if (failed) return lose(failed.message(), false);
        socket_ = std::make_shared<tcp::socket>(io);
        net::async_connect(
            *socket_, found,
            [this, attempt, socket = socket_](const error_code& error, const tcp::endpoint&) {
              if (attempt != attempts_ || stopping_) return;
              if (error) return lose(error.message(), false);
              connection_ = std::make_shared<PageConnection>(
                  std::move(*socket), limits_of_pages(options.identity.page_size, options.page_bytes),
                  options.write_time);
              connection_->begin(
                  {[this](PageMessage message) { receive(std::move(message)); },
                   [this](const std::string& reason, bool refused) { lose(reason, refused); }});
              connection_->send(encoded(PageHello{options.key, options.identity, 0}));
            });
      });
}

void PageClient::Impl::lose(const std::string& reason, bool refused, bool differs) {
  connected = false;
  ++attempts_;
  attempt_deadline_.cancel();
  resolver_.cancel();
  if (const auto socket = std::exchange(socket_, nullptr)) {
    error_code ignored;
    socket->close(ignored);
  }
  if (const auto connection = std::exchange(connection_, nullptr)) connection->close();
  paused_ = false;
  refusals += refused;
  for (auto& [id, ask] : asks_) end(ask);
  asks_.clear();
  ask_deadline_.cancel();
  settle({false, differs, reason});
  if (stopping_) return;
  if (tried_ || !differs) say(reason);  // else whoever waits for the first attempt says it
  tried_ = true;
  if (differs) retry_time_ = options.max_retry_time;
  retry_.expires_after(retry_time_);
  retry_.async_wait([this](const error_code& cancelled) {
    if (!cancelled) connect();
  });
  retry_time_ = std::min(retry_time_ * 2, options.max_retry_time);
}

void PageClient::Impl::shut_down() {
  stopping_ = true;
  retry_.cancel();
  lose("is not needed any more", false);
}

void PageClient::Impl::receive(PageMessage message) {
  heard_ = steady_clock::now();
  if (const auto* hello = std::get_if<PageHello>(&message)) return greet(*hello);
  if (const auto* goodbye = std::get_if<PageGoodbye>(&message))
    return lose(Error("refuses this side", goodbye->reason).what(), true, !connected);
  if (!connected) throw Error("message about pages", "a connection must begin with a greeting");
  if (auto* page = std::get_if<PageData>(&message)) return take_page(std::move(*page));
  if (const auto* end = std::get_if<PageEnd>(&message)) return take_end(*end);
}

void PageClient::Impl::greet(const PageHello& hello) {
  if (connected) throw Error("message about pages", "a connection must have one greeting", "another");
  if (const KVDifference difference = difference_of(options.identity, hello.identity);
      !difference.rule.empty())
    return lose(difference.rule + "; found " + difference.found, true, true);
  attempt_deadline_.cancel();
  max_pages = hello.max_tokens / options.identity.page_size;
  connected = true;
  if (options.note && hello.identity.arithmetic != options.identity.arithmetic)
    options.note(name_ +
                 " computes by other kernels, so that log-probabilities can differ in their last digits: " +
                 hello.identity.arithmetic + ", here " + options.identity.arithmetic);
  tried_ = true;
  settle({true, false, ""});
}

void PageClient::Impl::ask(std::uint64_t request, std::vector<std::int32_t> tokens, std::int64_t first) {
  const std::int64_t size = options.identity.page_size,
                     end_page = std::min(static_cast<std::int64_t>(tokens.size()) / size, max_pages.load());
  Ask made{request, std::move(tokens), {}, first, first, end_page, {}, steady_clock::now() + options.timeout};
  if (!connected || stopping_ || first >= end_page) return end(made);
  made.tokens.resize(static_cast<std::size_t>(end_page * size));
  ChainHash hash = root_;
  for (std::span<const std::int32_t> left(made.tokens); !left.empty();
       left = left.subspan(static_cast<std::size_t>(size)))
    made.hashes.push_back(hash = chain_hash(hash, left.first(static_cast<std::size_t>(size))));
  const std::uint64_t id = ++last_id_;
  send(id, asks_.emplace(id, std::move(made)).first->second);
  arm();
}

void PageClient::Impl::send(std::uint64_t id, Ask& ask) {
  ask.since = steady_clock::now();
  ask.first = ask.next;
  connection_->send(encoded(PageAsk{id, ask.first, ask.hashes.back(), ask.tokens}));
}

// The engine waits for this no more.
void PageClient::Impl::end(Ask& ask) {
  if (std::exchange(ask.dropped, true)) return;
  --outstanding;
  arrive({{ask.request, 0, {}}, true});
}

void PageClient::Impl::take_page(PageData page) {
  const std::string where = "message about pages";
  const auto found = asks_.find(page.id);
  if (found == asks_.end()) throw Error(where, "a page must be of an ask that has not ended");
  Ask& ask = found->second;
  if (page.index != ask.next || page.index >= ask.end)
    throw Error(where,
                "pages must come in the order of the prompt, " + std::to_string(ask.next) + " of " +
                    std::to_string(ask.end) + " next",
                std::to_string(page.index));
  const auto size = static_cast<std::size_t>(options.identity.page_size),
             at = static_cast<std::size_t>(page.index);
  if (page.hash != ask.hashes[at] ||
      !std::ranges::equal(page.tokens, std::span(ask.tokens).subspan(at * size, size)))
    throw Error(where, "a page must be of the tokens that were asked for", "others");
  if (page.bytes.size() != static_cast<std::size_t>(options.page_bytes))
    throw Error(where, "a page must have " + std::to_string(options.page_bytes) + " bytes",
                std::to_string(page.bytes.size()));
  ++ask.next;
  if (!ask.dropped) arrive({{ask.request, page.index, std::move(page.bytes)}, false});
}

void PageClient::Impl::take_end(const PageEnd& message) {
  const auto found = asks_.find(message.id);
  if (found == asks_.end()) throw Error("message about pages", "an end must be of an ask that has not ended");
  Ask& ask = found->second;
  if (message.status == PageEnd::Status::whole && ask.next != ask.end)
    throw Error("message about pages", "all pages must have come in front of the end of an ask",
                std::to_string(ask.next) + " of " + std::to_string(ask.end));
  if (message.status == PageEnd::Status::whole) {
    retry_time_ = options.retry_time;
    if (!said_.empty() && options.note) options.note(name_ + " computes prompts again");
    said_.clear();
  } else if (message.status == PageEnd::Status::refused && !ask.dropped) {
    say(Error("did not compute a prompt", message.reason).what());
  }
  const bool more =
      message.status == PageEnd::Status::more && ask.next > ask.first && ask.next < ask.end && !ask.dropped;
  if (more) {
    auto node = asks_.extract(found);
    const std::uint64_t id = ++last_id_;
    node.key() = id;
    send(id, asks_.insert(std::move(node)).position->second);
    return;
  }
  end(ask);
  asks_.erase(found);
  arm();
}

void PageClient::Impl::cancel(std::uint64_t request) {
  for (auto& [id, ask] : asks_)
    if (ask.request == request && !ask.dropped) {
      ask.dropped = true;
      --outstanding;
      ask.deadline = steady_clock::now() + options.timeout;
      connection_->send(encoded(PageCancel{id}));
      arm();
      return;
    }
}

void PageClient::Impl::arm() {
  if (asks_.empty()) {
    ask_deadline_.cancel();
    return;
  }
  const auto soonest = std::min_element(asks_.begin(), asks_.end(), [](const auto& a, const auto& b) {
    return a.second.deadline < b.second.deadline;
  });
  ask_deadline_.expires_at(soonest->second.deadline);
  ask_deadline_.async_wait([this](const error_code& cancelled) {
    if (!cancelled) look_at_deadlines();
  });
}

void PageClient::Impl::look_at_deadlines() {
  const auto now = steady_clock::now();
  for (auto& [id, ask] : asks_) {
    if (ask.deadline > now) continue;
    // One that sends nothing at all would let every prompt wait so long.
    if (ask.dropped || (heard_ < ask.since && !paused_)) return lose("does not answer in time", false);
    end(ask);
    ask.deadline = now + options.timeout;
    connection_->send(encoded(PageCancel{id}));
    say("did not compute a prompt in time");
  }
  arm();
}

void PageClient::Impl::arrive(Arrival arrival) {
  {
    const std::lock_guard lock(mutex_);
    queued_ += arrival.page.bytes.size();
    arrived_.push_back(std::move(arrival));
    if (queued_ > options.queue_bytes && connection_) {
      paused_ = true;
      connection_->pause(true);
    }
  }
  const std::lock_guard lock(wake_mutex);
  if (wake) wake();
}

KVArrivals PageClient::Impl::take(std::size_t max_bytes) {
  KVArrivals taken;
  const std::lock_guard lock(mutex_);
  for (std::size_t bytes = 0; !arrived_.empty(); arrived_.pop_front()) {
    Arrival& next = arrived_.front();
    if (next.ends) {
      taken.ended.push_back(next.page.request);
      continue;
    }
    const std::size_t size = next.page.bytes.size();
    if (!taken.pages.empty() && bytes + size > max_bytes) break;
    bytes += size;
    queued_ -= size;
    taken.pages.push_back(std::move(next.page));
  }
  if (paused_ && queued_ <= options.queue_bytes / 2) net::post(io, [this] { read_on(); });
  return taken;
}

void PageClient::Impl::forget(std::uint64_t request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(arrived_, [&](const Arrival& each) {
    if (each.page.request != request) return false;
    queued_ -= each.page.bytes.size();
    return true;
  });
}

PageClient::PageClient(PageClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
PageClient::~PageClient() = default;

void PageClient::run() {
  net::post(impl_->io, [impl = impl_.get()] { impl->connect(); });
  impl_->io.run();
}

void PageClient::stop() {
  impl_->connected = false;
  net::post(impl_->io, [impl = impl_.get()] { impl->shut_down(); });
}

PageClient::Attempt PageClient::first_attempt() const { return impl_->first_attempt(); }

void PageClient::when_arrived(std::function<void()> wake) {
  const std::lock_guard lock(impl_->wake_mutex);
  impl_->wake = std::move(wake);
}

bool PageClient::ask(std::uint64_t request, std::span<const std::int32_t> tokens, std::int64_t first) {
  if (!impl_->connected || first >= impl_->max_pages || impl_->outstanding >= impl_->options.asks)
    return false;
  ++impl_->outstanding;
  net::post(impl_->io, [impl = impl_.get(), request, first,
                        tokens = std::vector<std::int32_t>(tokens.begin(), tokens.end())]() mutable {
    impl->ask(request, std::move(tokens), first);
  });
  return true;
}

void PageClient::cancel(std::uint64_t request) {
  impl_->forget(request);
  net::post(impl_->io, [impl = impl_.get(), request] { impl->cancel(request); });
}

KVArrivals PageClient::take(std::size_t max_bytes) { return impl_->take(max_bytes); }
bool PageClient::connected() const { return impl_->connected; }
std::int64_t PageClient::refusals() const { return impl_->refusals; }

}  // namespace meshloom::trainer
