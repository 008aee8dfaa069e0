#include "trainer/input/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hal/error.h"
#include "trainer/input/file.h"

namespace meshloom::trainer {

LineFile::LineFile(const std::string& path, std::string where)
    : where_(std::move(where)), fd_(open_file(path, where_)) {}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

LineFile::LineFile(LineFile&& other) noexcept
    : where_(std::move(other.where_)),
      fd_(std::exchange(other.fd_, -1)),
      offset_(other.offset_),
      number_(other.number_),
      ahead_(std::move(other.ahead_)),
      used_(other.used_) {}

bool LineFile::fill() {
  ahead_.erase(0, used_);
  used_ = 0;
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(where_, "the file must be readable", std::strerror(errno));
    ahead_.append(block, static_cast<std::size_t>(got));
    return got > 0;
  }
}

bool LineFile::next(Line& line) {
  std::size_t searched = 0;  // of what is ahead
  std::size_t end;
  while ((end = ahead_.find('\n', used_ + searched)) == std::string::npos) {
    searched = ahead_.size() - used_;
    if (static_cast<std::int64_t>(searched) > kLongest)
      throw Error(where_ + ", line " + std::to_string(number_ + 1),
                  "a line must be at most " + std::to_string(kLongest >> 20) + " MiB long", "a longer one");
    if (!fill()) break;
  }
  const std::size_t taken = (end == std::string::npos ? ahead_.size() : end + 1) - used_;
  if (taken == 0) return false;
  line.text.assign(ahead_, used_, taken);
  while (!line.text.empty() && (line.text.back() == '\n' || line.text.back() == '\r')) line.text.pop_back();
  line.number = ++number_;
  line.offset = offset_;
  line.bytes = static_cast<std::int64_t>(line.text.size());
  offset_ += static_cast<std::int64_t>(taken);
  used_ += taken;
  return true;
}

std::string LineFile::at(std::int64_t offset, std::int64_t bytes) const {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(fd_, text.data() + done, text.size() - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(where_, "the file must stay as it was when the run started",
                  got < 0 ? std::strerror(errno) : "it has become shorter");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace meshloom::trainer
