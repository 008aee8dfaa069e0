#include "trainer/io/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxPendingBytes = 64 << 20;

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) throw Error("'" + path_ + "'", "must be writable", std::strerror(errno));
}

AppendFile::~AppendFile() {
  flush();
  ::close(fd_);
}

std::string AppendFile::add(std::string_view record) {
  if (pending_.size() + record.size() > kMaxPendingBytes)
    ++dropped_;
  else
    pending_ += record;
  return flush();
}

std::string AppendFile::sync() {
  std::string failure = flush();
  if (failure.empty() && ::fdatasync(fd_) != 0)
    failure = fmt::format("'{}': must reach the disk; found {}", path_, std::strerror(errno));
  return failure;
}

std::string AppendFile::flush() {
  std::size_t done = 0;
  int code = 0;
  while (done < pending_.size() && code == 0) {
    const ssize_t put = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (put >= 0)
      done += static_cast<std::size_t>(put);
    else if (errno != EINTR)
      code = errno;
  }
  pending_.erase(0, done);
  if (code == 0) return {};
  const std::string lost = dropped_ == 0 ? "" : fmt::format("; {} records are dropped", dropped_);
  return fmt::format("'{}': must be writable; found {}{}", path_, std::strerror(code), lost);
}

}  // namespace meshloom::trainer
