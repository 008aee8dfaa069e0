// Where a server listens, as HOST:PORT; a host of IPv6 stands in brackets.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::trainer {

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

// Throws Error, naming the option, for anything else, and for ports below `min_port`.
Address parse_address(const std::string& option, const std::string& text, int min_port);
std::string address_text(const std::string& host, std::uint16_t port);

bool is_loopback(const std::string& host);

}  // namespace meshloom::trainer
