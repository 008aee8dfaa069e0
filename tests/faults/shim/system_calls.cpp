// Calls of the system that fail, and a log of those that make files last.
#include "tests/faults/shim/faults.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

using meshloom::tests::fault_of;
using meshloom::tests::next_function;

namespace {

std::string path_of(int fd) {
  char name[64], path[4096];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(name, path, sizeof path);
  return length < 0 ? std::string() : std::string(path, static_cast<std::size_t>(length));
}

void log(const std::string& line) {
  const char* path = std::getenv("MESHLOOM_FAULTS_LOG");
  if (!path) return;
  std::FILE* file = std::fopen(path, "a");
  if (!file) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, std::size_t bytes) {
  static const auto real = next_function<ssize_t (*)(int, const void*, std::size_t)>("write");
  const int kept = errno;
  if (meshloom::tests::any_faults())
    if (const auto code = fault_of("write", path_of(fd))) {
      errno = *code;
      return -1;
    }
  errno = kept;
  return real(fd, data, bytes);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next_function<int (*)(const char*, const char*)>("rename");
  if (const auto code = fault_of("rename", to)) {
    errno = *code;
    return -1;
  }
  log(std::string("rename ") + to);
  return real(from, to);
}

int fsync(int fd) {
  static const auto real = next_function<int (*)(int)>("fsync");
  log("sync " + path_of(fd));
  return real(fd);
}

int fdatasync(int fd) {
  static const auto real = next_function<int (*)(int)>("fdatasync");
  log("sync " + path_of(fd));
  return real(fd);
}

int flock(int fd, int operation) noexcept {
  static const auto real = next_function<int (*)(int, int)>("flock");
  if (const auto code = fault_of("flock", path_of(fd))) {
    errno = *code;
    return -1;
  }
  return real(fd, operation);
}

}  // extern "C"
