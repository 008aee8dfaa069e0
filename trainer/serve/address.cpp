#include "trainer/serve/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {

Address parse_address(const std::string& option, const std::string& text, int min_port) {
  const std::size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || at != end) port = -1;
  }
  std::string host = text.substr(0, std::min(colon, text.size()));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    port = -1;
  if (host.empty() || port < min_port || port > 65535)
    throw Error(option, fmt::format("must be HOST:PORT, with a port from {} to 65535", min_port),
                "'" + text + "'");
  return {std::move(host), static_cast<std::uint16_t>(port)};
}

std::string address_text(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace meshloom::trainer
