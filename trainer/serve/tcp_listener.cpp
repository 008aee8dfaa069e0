#include "trainer/serve/tcp_listener.h"

#include <chrono>

#include "hal/error.h"
#include "trainer/serve/address.h"

namespace meshloom::trainer {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

constexpr std::chrono::milliseconds kPause{100};  // after a failure

}  // namespace

TcpListener::TcpListener(net::io_context& io, const std::string& host, std::uint16_t port)
    : acceptor_(io), pause_(io) {
  const std::string where = address_text(host, port);
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) throw Error(where, "must be an address of this machine", error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto must = [&] {
    if (error) throw Error(where, "must be an address and a port that can be listened on", error.message());
  };
  acceptor_.open(endpoint.protocol(), error), must();
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error), must();
  acceptor_.bind(endpoint, error), must();
  acceptor_.listen(net::socket_base::max_listen_connections, error), must();
  port_ = acceptor_.local_endpoint().port();
}

void TcpListener::accept(std::function<void(Socket)> connected) {
  connected_ = std::move(connected);
  next();
}

void TcpListener::next() {
  acceptor_.async_accept([this](const error_code& error, Socket socket) {
    if (closed_) return;
    if (!error) {
      connected_(std::move(socket));
      next();
      return;
    }
    pause_.expires_after(kPause);
    pause_.async_wait([this](const error_code& cancelled) {
      if (!cancelled && !closed_) next();
    });
  });
}

void TcpListener::close() {
  closed_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

}  // namespace meshloom::trainer
