#include "hal/write_all.h"

#include <unistd.h>

#include <cerrno>

namespace meshloom::hal {

bool write_all(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t put = ::write(fd, data.data(), data.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    data = data.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace meshloom::hal
