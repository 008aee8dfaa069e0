#include "trainer/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

[[noreturn]] void unreadable(const std::string& where) {
  throw Error(where, "the file must be readable", std::strerror(errno));
}

struct stat status_of(const Descriptor& file, const std::string& where) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) unreadable(where);
  return status;
}

// O_NONBLOCK: opening a pipe does not wait for a writer. It changes nothing for regular files.
Descriptor open_any(const std::string& path, const std::string& where) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) unreadable(where);
  return file;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string read_to_end(const Descriptor& file, std::int64_t expected, std::int64_t max_bytes,
                        const std::string& where) {
  const auto check_size = [&](std::int64_t bytes) {
    if (bytes > max_bytes)
      throw Error(where, "must have at most " + std::to_string(max_bytes) + " bytes",
                  bytes == expected ? std::to_string(bytes) : "more");
  };
  check_size(expected);
  std::string text;
  text.reserve(static_cast<std::size_t>(expected));
  char block[1 << 16];
  while (const std::size_t got = read_some(file, block, sizeof block, where)) {
    text.append(block, got);
    check_size(static_cast<std::int64_t>(text.size()));
  }
  return text;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor open_file(const std::string& path, const std::string& where) {
  Descriptor file = open_any(path, where);
  if (const mode_t mode = status_of(file, where).st_mode; !S_ISREG(mode))
    throw Error(where, "must be a file", kind_of(mode));
  return file;
}

std::int64_t file_bytes(const Descriptor& file, const std::string& where) {
  return status_of(file, where).st_size;
}

void read_at(const Descriptor& file, void* into, std::size_t bytes, std::int64_t offset,
             const std::string& where) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file.get(), static_cast<char*>(into) + done, bytes - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) unreadable(where);
    if (got == 0) throw Error(where, "the file must be readable", "its end");
    done += static_cast<std::size_t>(got);
  }
}

std::size_t read_some(const Descriptor& file, void* into, std::size_t bytes, const std::string& where) {
  for (;;) {
    const ssize_t got = ::read(file.get(), into, bytes);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) unreadable(where);
  }
}

std::string read_file(const std::string& path, const std::string& where, std::int64_t max_bytes) {
  const Descriptor file = open_file(path, where);
  return read_to_end(file, file_bytes(file, where), max_bytes, where);
}

std::string read_stream(const std::string& path, const std::string& where) {
  const Descriptor file = open_any(path, where);
  const struct stat status = status_of(file, where);
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
    throw Error(where, "must be a file or a pipe", kind_of(status.st_mode));
  // From here on reads wait for a slow writer.
  if (S_ISFIFO(status.st_mode) && ::fcntl(file.get(), F_SETFL, O_RDONLY) != 0) unreadable(where);
  return read_to_end(file, S_ISREG(status.st_mode) ? status.st_size : 0,
                     std::numeric_limits<std::int64_t>::max(), where);
}

}  // namespace meshloom::trainer
