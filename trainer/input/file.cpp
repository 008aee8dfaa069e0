#include "trainer/input/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

int open_file(const std::string& path, const std::string& where) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw Error(where, "the file must be readable", std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw Error(where, "the file must be readable", std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw Error(where, "must be a file", "a directory");
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) throw Error(where, "must be a file", "a device");
  return std::exchange(file.fd, -1);
}

std::string read_file(const std::string& path, const std::string& where) {
  const Descriptor file{open_file(path, where)};
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw Error(where, "the file must be readable", std::strerror(errno));
  std::string text;
  text.reserve(static_cast<std::size_t>(status.st_size));
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(where, "the file must be readable", std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

}  // namespace meshloom::trainer
