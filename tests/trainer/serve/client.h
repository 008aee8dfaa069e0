// A client for tests of servers: plain sockets, so that it can send what no library would.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::tests {

struct Answer {
  int status = 0;                                            // 0 = the connection ended first
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // without the marks of chunks
  bool whole = false;

  std::string header(std::string_view name) const;  // "" = none
  // The data of server-sent events.
  std::vector<std::string> events() const;
};

class Client {
 public:
  explicit Client(std::uint16_t port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Returns whether all of it was taken.
  bool send(std::string_view bytes);
  void request(const std::string& method, const std::string& path, const std::string& body = {},
               const std::string& headers = {});
  // Reads one response, at most for 20 seconds.
  Answer answer();
  // Reads until `text` has come, or the connection has ended; returns whether it came.
  bool read_until(std::string_view text);
  // Whether the server closes the connection, within 20 seconds, without sending more.
  bool closed();
  void close();
  // The server reads no more from here on.
  void end_sending();
  // Ends the connection with a reset.
  void reset();

 private:
  bool more();

  int socket_ = -1;
  std::string buffer_;
};

// One request on a connection of its own.
Answer ask(std::uint16_t port, const std::string& method, const std::string& path,
           const std::string& body = {}, const std::string& headers = {});

}  // namespace meshloom::tests
