// Listens at an address and hands over the sockets of those who connect. All calls are made on the thread of its io_context, or before that runs.
#pragma once

#include <utility>  // Asio 1.74 uses std::exchange without including this

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace meshloom::trainer {

class TcpListener {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // Port 0 is any that is free. Throws Error, naming the address, where it cannot be listened on.
  TcpListener(boost::asio::io_context& io, const std::string& host, std::uint16_t port);

  std::uint16_t port() const { return port_; }
  // From now on calls `connected` with each socket, until close(). After a failure, such as too many open files, it waits a little.
  void accept(std::function<void(Socket)> connected);
  void close();

 private:
  void next();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::function<void(Socket)> connected_;
  std::uint16_t port_ = 0;
  bool closed_ = false;
};

}  // namespace meshloom::trainer
