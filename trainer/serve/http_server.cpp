#include "trainer/serve/http_server.h"

#include <utility>  // Asio 1.74 uses std::exchange without including this

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "hal/error.h"
#include "trainer/serve/tcp_listener.h"

namespace meshloom::trainer {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = net::ip::tcp;
using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kAheadBytes =
    64 << 10;  // read of what follows while a request is answered, or of a chunk's header
constexpr milliseconds kLingerTime{
    2'000};  // for a client to read the end of a response before its connection closes
constexpr std::size_t kMoreConnections =
    64;  // beyond the limit, which are told so; still more are closed at once

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// A header's value can come from a client.
std::string one_line(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c < 32 || c == 127) c = '?';
  return out;
}

std::string chunk_of(std::string_view part) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string size;
  for (std::size_t n = part.size(); n > 0; n >>= 4) size.insert(size.begin(), kDigits[n & 15]);
  return size + "\r\n" + std::string(part) + "\r\n";
}

struct Refusal {
  int status;
  const char* message;
};

Refusal refusal_of(const error_code& error) {
  if (error == http::error::header_limit) return {431, "the header of a request is too long"};
  if (error == http::error::body_limit) return {413, "the body of a request is too long"};
  if (error == http::error::bad_content_length || error == http::error::bad_transfer_encoding)
    return {400, "a request must have one valid Content-Length, or Transfer-Encoding: chunked"};
  if (error == http::error::bad_version) return {400, "the version must be HTTP/1.0 or HTTP/1.1"};
  return {400, "this is no valid HTTP request"};
}

}  // namespace

std::string_view reason_of(int status) {
  return {http::obsolete_reason(static_cast<http::status>(status)).data(),
          http::obsolete_reason(static_cast<http::status>(status)).size()};
}

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpOptions given, Hooks given_hooks)
      : options(std::move(given)),
        hooks(std::move(given_hooks)),
        listener_(io, options.host, options.port),
        drain_(io) {}

  void accept() {
    listener_.accept([this](tcp::socket socket) { connected(std::move(socket)); });
  }
  void shut_down();
  void remove(const std::shared_ptr<Connection>& connection) {
    connections_.erase(connection);
    if (draining && connections_.empty()) drain_.cancel();
  }
  std::uint16_t port() const { return listener_.port(); }

  const HttpOptions options;
  const Hooks hooks;
  bool draining = false;
  net::io_context io{1};

 private:
  void connected(tcp::socket socket);

  TcpListener listener_;
  net::steady_timer drain_;
  std::set<std::shared_ptr<Connection>> connections_;
};

// A connection: one read is always pending, also while a response is computed, so that the end of the client is seen.
class HttpServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Impl& server, bool refused)
      : server_(server),
        socket_(std::move(socket)),
        deadline_(server.io),
        write_deadline_(server.io),
        refused_(refused) {}

  void begin() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    arm(server_.options.idle_time);
    read();
  }

  bool idle() const { return state_ == State::idle; }

  void close() {
    if (state_ == State::closed) return;
    state_ = State::closed;
    ++turn_;
    deadline_.cancel();
    write_deadline_.cancel();
    error_code ignored;
    socket_.close(ignored);
    gone_ = nullptr;
    server_.remove(shared_from_this());
  }

  // The client is gone, or counts as such.
  void lose() {
    const std::function<void()> gone = std::exchange(gone_, nullptr);
    close();
    if (gone) gone();
  }

  bool answers(std::uint64_t turn) const { return turn == turn_ && state_ == State::answering && !finished_; }

  void send(const HttpResponse& response) {
    enqueue(head(response, "Content-Length: " + std::to_string(response.body.size()) + "\r\n"));
    if (!head_only_) enqueue(response.body);
    finish();
  }
  void start(const HttpResponse& response) {
    started_ = true;
    if (old_) keep_ = false;  // HTTP/1.0 has no chunks: the response ends with the connection
    enqueue(head(response, old_ ? "" : "Transfer-Encoding: chunked\r\n"));
    write(response.body);
  }
  void write(std::string_view part) {
    if (part.empty() || head_only_ || !started_) return;
    enqueue(old_ ? std::string(part) : chunk_of(part));
    if (unsent_ <= server_.options.unsent_bytes) return;
    net::post(server_.io, [self = shared_from_this(), turn = turn_] {
      if (self->answers(turn)) self->lose();
    });
  }
  void end() {
    if (!old_ && !head_only_) enqueue("0\r\n\r\n");
    finish();
  }
  void when_gone(std::function<void()> call) { gone_ = std::move(call); }

 private:
  enum class State { idle, head, body, answering, lingering, closed };

  void arm(milliseconds time) {
    deadline_.expires_after(time);
    deadline_.async_wait([self = shared_from_this(), armed = ++armed_](const error_code& error) {
      if (!error && armed == self->armed_) self->timed_out();
    });
  }
  void disarm() {
    ++armed_;
    deadline_.cancel();
  }
  void timed_out() {
    if (state_ == State::head)
      refuse(408, "the header of a request must arrive in time");
    else if (state_ == State::body)
      refuse(408, "the body of a request must arrive in time");
    else if (state_ == State::idle || state_ == State::lingering)
      close();
  }

  void read() {
    if (reading_ || state_ == State::closed || (state_ == State::answering && buffer_.size() >= kAheadBytes))
      return;
    reading_ = true;
    socket_.async_read_some(net::buffer(block_),
                            [self = shared_from_this()](const error_code& error, std::size_t n) {
                              self->reading_ = false;
                              self->has_read(error, n);
                            });
  }
  void has_read(const error_code& error, std::size_t n) {
    if (state_ == State::closed) return;
    if (error == net::error::eof && state_ == State::answering && finished_) {
      keep_ = false;  // the client sends nothing more, and may read the rest
      return;
    }
    if (error) return lose();
    if (state_ == State::lingering) return read();
    buffer_.append(block_.data(), n);
    advance();
  }

  // Does what the buffer allows.
  void advance() {
    if (state_ == State::answering || buffer_.empty()) return read();
    if (state_ == State::idle) {
      state_ = State::head;
      arm(server_.options.header_time);
      parser_.emplace();
      parser_->header_limit(static_cast<std::uint32_t>(server_.options.header_bytes));
      parser_->body_limit(server_.options.body_bytes);
      keep_ = old_ = head_only_ = started_ = finished_ = false;
    }
    while (state_ == State::head || state_ == State::body) {
      if (buffer_.empty()) return read();
      error_code error;
      const std::size_t taken = parser_->put(net::buffer(buffer_), error);
      buffer_.erase(0, taken);
      if (error == http::error::need_more) {
        const bool whole = state_ == State::body && buffer_.size() > kAheadBytes;
        return whole ? refuse(400, "the header of a chunk is too long") : read();
      }
      if (error) {
        const Refusal refusal = refusal_of(error);
        return refuse(refusal.status, refusal.message);
      }
      if (state_ == State::head && parser_->is_header_done() && !take_header()) return;
      if (parser_->is_done()) return dispatch();
    }
  }

  // Returns whether to go on with the body.
  bool take_header() {
    const auto& message = parser_->get();
    const auto fields = [&](http::field name) {
      const auto range = message.equal_range(name);
      return std::distance(range.first, range.second);
    };
    keep_ = message.keep_alive();
    old_ = message.version() < 11;
    head_only_ = message.method() == http::verb::head;
    const auto lengths = fields(http::field::content_length),
               encodings = fields(http::field::transfer_encoding);
    const auto fail = [&](int status, const std::string& text) {
      refuse(status, text);
      return false;
    };
    if (message.version() != 10 && message.version() != 11)
      return fail(400, "the version must be HTTP/1.0 or HTTP/1.1");
    if (lengths + encodings > 1)
      return fail(400, "a request must have one valid Content-Length, or Transfer-Encoding: chunked");
    if (encodings == 1 && lower({message[http::field::transfer_encoding].data(),
                                 message[http::field::transfer_encoding].size()}) != "chunked")
      return fail(400, "Transfer-Encoding must be chunked");
    if (!old_ && fields(http::field::host) != 1) return fail(400, "a request must have one header Host");
    if (refused_) return fail(503, "too many connections are open");
    if (server_.draining) return fail(503, "the server is shutting down");
    request_ = {};
    request_.method = head_only_ ? "GET" : std::string(message.method_string());
    std::string target(message.target());
    target.resize(std::min(target.find('#'), target.size()));
    // A server has to take a whole URI too, as clients send it to proxies (RFC 9112, 3.2.2).
    if (const std::string start = lower(target.substr(0, 8));
        start.starts_with("http://") || start == "https://") {
      const std::size_t host = start.find("//") + 2;
      target.erase(0, std::min(target.find_first_of("/?", host), target.size()));
      if (!target.starts_with('/')) target.insert(0, "/");
    }
    const std::size_t mark = std::min(target.find('?'), target.size());
    request_.path = target.substr(0, mark);
    request_.query = target.substr(std::min(mark + 1, target.size()));
    for (const auto& field : message)
      request_.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                    std::string(field.value()));
    if (server_.hooks.admit)
      if (const std::optional<HttpResponse> response = server_.hooks.admit(request_)) {
        if (!parser_->is_done()) keep_ = false;  // its body is not read
        begin_answer();
        send(*response);
        return false;
      }
    if (parser_->is_done()) return true;
    state_ = State::body;
    arm(server_.options.body_time);
    if (const std::string* expect = request_.header("expect");
        expect && lower(*expect) == "100-continue" && !old_)
      enqueue("HTTP/1.1 100 Continue\r\n\r\n");
    return true;
  }

  void begin_answer() {
    disarm();
    state_ = State::answering;
    ++turn_;
  }

  void dispatch();

  // Answers what is wrong with a request, and closes the connection.
  void refuse(int status, const std::string& message) {
    keep_ = false;
    begin_answer();
    HttpResponse response{status, message};
    if (server_.hooks.error_body)
      response.body = server_.hooks.error_body(status, message);
    else
      response.type = "text/plain";
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    send(response);
    read();
  }

  std::string head(const HttpResponse& response, const std::string& length) {
    if (server_.draining) keep_ = false;
    std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " +
                       std::string(reason_of(response.status)) + "\r\nContent-Type: " + response.type +
                       "\r\n" + length;
    if (!keep_)
      text += "Connection: close\r\n";
    else if (old_)
      text += "Connection: keep-alive\r\n";
    for (const auto& [name, value] : response.headers) text += name + ": " + one_line(value) + "\r\n";
    return text + "\r\n";
  }

  void finish() {
    finished_ = true;
    gone_ = nullptr;
    if (!writing_ && queue_.empty()) answered();
  }

  // The response is sent.
  void answered() {
    ++turn_;
    if (!keep_ || server_.draining) {
      error_code ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      state_ = State::lingering;
      buffer_.clear();
      arm(kLingerTime);
      return read();
    }
    state_ = State::idle;
    parser_.reset();
    arm(server_.options.idle_time);
    net::post(server_.io, [self = shared_from_this()] {
      if (self->state_ == State::idle) self->advance();
    });
  }

  void enqueue(std::string part) {
    if (part.empty() || state_ == State::closed) return;
    unsent_ += part.size();
    if (queue_.size() > 1)  // the first may be on its way
      queue_.back() += part;
    else
      queue_.push_back(std::move(part));
    pump();
  }
  void pump() {
    if (writing_ || queue_.empty()) return;
    writing_ = true;
    write_deadline_.expires_after(server_.options.write_time);
    write_deadline_.async_wait([self = shared_from_this(), armed = ++write_armed_](const error_code& error) {
      if (!error && armed == self->write_armed_ && self->state_ != State::closed) self->lose();
    });
    socket_.async_write_some(net::buffer(queue_.front().data() + sent_, queue_.front().size() - sent_),
                             [self = shared_from_this()](const error_code& error, std::size_t n) {
                               self->writing_ = false;
                               self->has_written(error, n);
                             });
  }
  void has_written(const error_code& error, std::size_t n) {
    if (state_ == State::closed) return;
    if (error) return lose();
    sent_ += n;
    unsent_ -= n;
    if (sent_ == queue_.front().size()) {
      queue_.pop_front();
      sent_ = 0;
    }
    if (!queue_.empty()) return pump();
    ++write_armed_;
    write_deadline_.cancel();
    if (state_ == State::answering && finished_) answered();
  }

  Impl& server_;
  tcp::socket socket_;
  net::steady_timer deadline_, write_deadline_;
  std::uint64_t armed_ = 0, write_armed_ = 0;
  const bool refused_;  // one too many
  State state_ = State::idle;
  std::array<char, kReadBytes> block_;
  std::string buffer_;  // read and not yet parsed
  bool reading_ = false, writing_ = false;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  bool keep_ = false, old_ = false, head_only_ = false;
  std::uint64_t turn_ = 0;  // of the request that is answered: a reply to another does nothing
  bool started_ = false, finished_ = false;
  std::deque<std::string> queue_;  // to be sent
  std::size_t sent_ = 0;           // bytes of its front
  std::size_t unsent_ = 0;
  std::function<void()> gone_;
};

class HttpServer::Reply : public HttpReply {
 public:
  Reply(std::shared_ptr<Connection> connection, std::shared_ptr<Impl> server, std::uint64_t turn)
      : connection_(std::move(connection)), server_(std::move(server)), turn_(turn) {}
  ~Reply() override {
    net::post(server_->io, [connection = connection_, turn = turn_] {
      if (connection->answers(turn)) connection->lose();
    });
  }
  void send(HttpResponse response) override {
    if (live()) connection_->send(response);
  }
  void start(const HttpResponse& head) override {
    if (live()) connection_->start(head);
  }
  void write(std::string_view part) override {
    if (live()) connection_->write(part);
  }
  void end() override {
    if (live()) connection_->end();
  }
  void when_gone(std::function<void()> call) override {
    if (live()) connection_->when_gone(std::move(call));
  }

 private:
  bool live() const { return connection_->answers(turn_); }

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Impl> server_;
  std::uint64_t turn_;
};

void HttpServer::Connection::dispatch() {
  request_.body = std::move(parser_->get().body());
  begin_answer();
  const auto reply = std::make_shared<Reply>(shared_from_this(), server_.shared_from_this(), turn_);
  try {
    server_.hooks.handle(std::move(request_), reply);
  } catch (const std::exception& error) {
    if (!started_)
      reply->send(
          {500, server_.hooks.error_body ? server_.hooks.error_body(500, error.what()) : error.what()});
    else
      lose();
  }
  read();
}

void HttpServer::Impl::connected(tcp::socket socket) {
  if (connections_.size() >= options.connections + kMoreConnections) return;
  const auto connection =
      std::make_shared<Connection>(std::move(socket), *this, connections_.size() >= options.connections);
  connections_.insert(connection);
  connection->begin();
}

void HttpServer::Impl::shut_down() {
  if (draining) return;
  draining = true;
  listener_.close();
  const auto now = connections_;
  for (const auto& connection : now)
    if (connection->idle()) connection->close();
  if (connections_.empty()) return;
  drain_.expires_after(options.drain_time);
  drain_.async_wait([this](const error_code& cancelled) {
    if (cancelled) return;
    const auto left = connections_;
    for (const auto& connection : left) connection->lose();
  });
}

HttpServer::HttpServer(HttpOptions options, Hooks hooks)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(hooks))) {
  impl_->accept();
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return impl_->port(); }

void HttpServer::run() { impl_->io.run(); }

void HttpServer::shut_down() {
  net::post(impl_->io, [impl = impl_.get()] { impl->shut_down(); });
}

HttpServer::Post HttpServer::post() const {
  return [weak = std::weak_ptr<Impl>(impl_)](std::function<void()> call) {
    if (const auto impl = weak.lock()) net::post(impl->io, std::move(call));
  };
}

}  // namespace meshloom::trainer
