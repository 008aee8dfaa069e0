// One TCP connection that messages about pages come and go over. Only page_client.cpp and page_server.cpp include it.
#pragma once

#include <utility>  // Asio 1.74 uses std::exchange without including this

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "trainer/serve/pages/page_message.h"

namespace meshloom::trainer {

// All calls are made on the thread of its io_context.
class PageConnection : public std::enable_shared_from_this<PageConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Hooks {
    std::function<void(PageMessage message)> message;  // what it throws ends the connection
    // Called once, unless close() was: why it ended, and whether because of what came over it.
    std::function<void(const std::string& reason, bool refused)> ended;
  };

  // The other side must take something of what is sent within `write_time`.
  PageConnection(Socket socket, const PageMessageLimits& limits, std::chrono::milliseconds write_time);

  void begin(Hooks hooks);
  // `lease` lives until the bytes are sent or the connection ends.
  void send(std::string bytes, std::shared_ptr<void> lease = {});
  // Says why, and closes once that is sent.
  void refuse(const std::string& reason);
  // While paused, nothing is read and no message comes.
  void pause(bool paused);
  void close();

 private:
  struct Part {
    std::string bytes;
    std::shared_ptr<void> lease;
  };
  void read();
  void deliver();
  void write();
  void end(const std::string& reason, bool refused);

  Socket socket_;
  boost::asio::steady_timer write_deadline_;
  const std::chrono::milliseconds write_time_;
  Hooks hooks_;
  PageMessageReader reader_;
  std::array<char, 256 << 10> block_;
  std::deque<Part> queue_;
  std::size_t sent_ = 0;  // bytes of its front
  bool reading_ = false, writing_ = false, paused_ = false, delivering_ = false, closing_ = false,
       closed_ = false;
  std::uint64_t armed_ = 0;
};

}  // namespace meshloom::trainer
