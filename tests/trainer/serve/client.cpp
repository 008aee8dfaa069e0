#include "tests/trainer/serve/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace meshloom::tests {
namespace {
constexpr int kPatience = 20'000;  // milliseconds; a server that answers takes far less
}

std::string Answer::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::vector<std::string> Answer::events() const {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) found.push_back(event.substr(6));
    at = end + 2;
  }
  return found;
}

Client::Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::end_sending() { ::shutdown(socket_, SHUT_WR); }

void Client::reset() {
  const linger none{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  close();
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd ready{socket_, POLLOUT, 0};
    if (socket_ < 0 || ::poll(&ready, 1, kPatience) <= 0) return false;
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void Client::request(const std::string& method, const std::string& path, const std::string& body,
                     const std::string& headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
  if (!body.empty() || method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  send(text + "\r\n" + body);
}

bool Client::more() {
  pollfd ready{socket_, POLLIN, 0};
  if (socket_ < 0 || ::poll(&ready, 1, kPatience) <= 0) return false;
  char block[1 << 16];
  const ssize_t n = ::recv(socket_, block, sizeof block, 0);
  if (n <= 0) return false;
  buffer_.append(block, static_cast<std::size_t>(n));
  return true;
}

bool Client::read_until(std::string_view text) {
  while (buffer_.find(text) == std::string::npos)
    if (!more()) return false;
  return true;
}

bool Client::closed() {
  if (!buffer_.empty()) return false;
  pollfd ready{socket_, POLLIN, 0};
  char byte;
  return ::poll(&ready, 1, kPatience) > 0 && ::recv(socket_, &byte, 1, 0) <= 0;
}

Answer Client::answer() {
  Answer answer;
  if (!read_until("\r\n\r\n")) return answer;
  const std::size_t end = buffer_.find("\r\n\r\n");
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::stoi(head.substr(9, 3));
  for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
    const std::size_t stop = head.find("\r\n", at), colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.headers.emplace_back(name, head.substr(colon + 2, stop - colon - 2));
    at = stop + 2;
  }
  if (answer.status == 100) return this->answer();
  if (answer.header("transfer-encoding") == "chunked") {
    for (;;) {
      if (!read_until("\r\n")) return answer;
      const std::size_t line = buffer_.find("\r\n");
      const std::size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2)
        if (!more()) return answer;
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
  } else if (const std::string length = answer.header("content-length"); !length.empty()) {
    while (buffer_.size() < std::stoul(length))
      if (!more()) return answer;
    answer.body = buffer_.substr(0, std::stoul(length));
    buffer_.erase(0, std::stoul(length));
  } else {
    while (more()) {
    }
    answer.body.swap(buffer_);
  }
  answer.whole = true;
  return answer;
}

Answer ask(std::uint16_t port, const std::string& method, const std::string& path, const std::string& body,
           const std::string& headers) {
  Client client(port);
  client.request(method, path, body, headers);
  return client.answer();
}

}  // namespace meshloom::tests
