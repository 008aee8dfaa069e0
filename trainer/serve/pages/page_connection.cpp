#include "trainer/serve/pages/page_connection.h"

#include <boost/asio/post.hpp>

#include <exception>
#include <string>

namespace meshloom::trainer {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

// What the operator reads. A peer that closes with bytes unread resets the connection, whether its process has ended or not.
std::string why_ended(const error_code& error) {
  const bool closed =
      error == net::error::eof || error == net::error::connection_reset || error == net::error::broken_pipe;
  return closed ? "the connection was closed" : error.message();
}

}  // namespace

PageConnection::PageConnection(Socket socket, const PageMessageLimits& limits,
                               std::chrono::milliseconds write_time)
    : socket_(std::move(socket)),
      write_deadline_(socket_.get_executor()),
      write_time_(write_time),
      reader_(limits) {}

void PageConnection::begin(Hooks hooks) {
  hooks_ = std::move(hooks);
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(net::socket_base::keep_alive(true), ignored);
  read();
}

void PageConnection::read() {
  if (reading_ || paused_ || closed_) return;
  reading_ = true;
  socket_.async_read_some(net::buffer(block_),
                          [self = shared_from_this()](const error_code& error, std::size_t n) {
                            self->reading_ = false;
                            if (self->closed_) return;
                            if (error) return self->end(why_ended(error), false);
                            if (self->closing_) return self->read();  // what still comes is not looked at
                            self->reader_.add({self->block_.data(), n});
                            self->deliver();
                          });
}

// The messages that are there, and then reads on.
void PageConnection::deliver() {
  if (delivering_) return;
  delivering_ = true;
  try {
    while (!paused_ && !closed_ && !closing_) {
      std::optional<PageMessage> message = reader_.next();
      if (!message) break;
      hooks_.message(std::move(*message));
    }
  } catch (const std::exception& error) {
    delivering_ = false;
    return end(error.what(), true);
  }
  delivering_ = false;
  read();
}

void PageConnection::pause(bool paused) {
  paused_ = paused;
  if (!paused && !closed_) deliver();
}

void PageConnection::send(std::string bytes, std::shared_ptr<void> lease) {
  if (closed_ || closing_) return;
  queue_.push_back({std::move(bytes), std::move(lease)});
  write();
}

void PageConnection::refuse(const std::string& reason) {
  send(encoded(PageGoodbye{reason.substr(0, kMaxReason)}));
  closing_ = true;
  paused_ = false;
  read();
}

void PageConnection::write() {
  if (writing_ || closed_ || queue_.empty()) return;
  writing_ = true;
  write_deadline_.expires_after(write_time_);
  write_deadline_.async_wait([self = shared_from_this(), armed = ++armed_](const error_code& error) {
    if (!error && armed == self->armed_ && !self->closed_)
      self->end("nothing of what was sent was taken in time", false);
  });
  const std::string& front = queue_.front().bytes;
  socket_.async_write_some(net::buffer(front.data() + sent_, front.size() - sent_),
                           [self = shared_from_this()](const error_code& error, std::size_t n) {
                             self->writing_ = false;
                             if (self->closed_) return;
                             if (error) return self->end(why_ended(error), false);
                             self->sent_ += n;
                             if (self->sent_ == self->queue_.front().bytes.size()) {
                               self->queue_.pop_front();
                               self->sent_ = 0;
                             }
                             if (!self->queue_.empty()) return self->write();
                             ++self->armed_;
                             self->write_deadline_.cancel();
                             if (!self->closing_) return;
                             error_code ignored;
                             self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
                             // The other side reads why, and closes; else the deadline does.
                             self->write_deadline_.expires_after(self->write_time_);
                             self->write_deadline_.async_wait([self](const error_code& cancelled) {
                               if (!cancelled && !self->closed_)
                                 self->end("the connection was refused", false);
                             });
                           });
}

void PageConnection::end(const std::string& reason, bool refused) {
  if (closed_) return;
  const std::function<void(const std::string&, bool)> ended = std::move(hooks_.ended);
  close();
  if (ended) ended(reason, refused);
}

void PageConnection::close() {
  if (closed_) return;
  closed_ = true;
  ++armed_;
  error_code ignored;
  write_deadline_.cancel();
  socket_.close(ignored);
  queue_.clear();
  // The hook that runs may be the one that closes it.
  net::post(socket_.get_executor(), [self = shared_from_this()] { self->hooks_ = {}; });
}

}  // namespace meshloom::trainer
