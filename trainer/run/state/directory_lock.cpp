#include "trainer/run/state/directory_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kRule = "one run at a time writes to a directory";

// The contents of a file of /proc; "" when it cannot be read.
std::string kernel_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// When a process started, in ticks since boot, which together with its number identifies it. "" = there is no
// such process.
std::string start_of(const std::string& process) {
  const std::string text = kernel_text("/proc/" + process + "/stat");
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

struct Owner {
  std::string process, start, host, boot;
};

std::string to_text(const Owner& owner) {
  return fmt::format("process {}\nstart {}\nhost {}\nboot {}\n", owner.process, owner.start, owner.host,
                     owner.boot);
}

std::optional<Owner> parse_owner(const std::string& text) {
  std::istringstream lines(text);
  Owner owner;
  const auto line = [&](const char* wanted, std::string& value) {
    std::string name;
    return static_cast<bool>(lines >> name >> value) && name == wanted;
  };
  if (line("process", owner.process) && line("start", owner.start) && line("host", owner.host) &&
      line("boot", owner.boot))
    return owner;
  return std::nullopt;
}

Owner this_process() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const std::string process = std::to_string(::getpid());
  std::string boot = kernel_text("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  const std::string start = start_of(process);
  return {process, start.empty() ? "-" : start, host, boot.empty() ? "-" : boot};
}

bool has_ended(const Owner& owner) {
  const Owner here = this_process();
  if (owner.host != here.host) return false;
  if (owner.boot != here.boot) return true;
  if (here.start != "-") return start_of(owner.process) != owner.start;
  return ::kill(static_cast<pid_t>(std::atoll(owner.process.c_str())), 0) != 0 && errno == ESRCH;
}

}  // namespace

DirectoryLock::DirectoryLock(std::string directory) : directory_(std::move(directory)) { acquire(); }

DirectoryLock::~DirectoryLock() { release(); }

void DirectoryLock::acquire() {
  const std::string path = directory_ + "/.lock", where = "'" + directory_ + "'";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) throw Error(where, "the run's directory must be writable", std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int code = errno;
  ::close(std::exchange(fd_, -1));
  if (code == EWOULDBLOCK) throw Error(where, kRule, "another run that is using it");
  if (code != ENOLCK && code != ENOSYS && code != EOPNOTSUPP && code != EINVAL)
    throw Error(where, kRule, std::strerror(code));
  acquire_owner_file();
}

void DirectoryLock::acquire_owner_file() {
  const std::string name = ".lock-owner", path = directory_ + "/" + name, where = "'" + path + "'";
  const std::string own = to_text(this_process());
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0) {
      const bool written =
          ::write(fd, own.data(), own.size()) == static_cast<ssize_t>(own.size()) && ::fsync(fd) == 0;
      const int code = errno;
      ::close(fd);
      if (written) {
        owner_ = own;
        return;
      }
      ::unlink(path.c_str());
      throw Error(where, "must be writable", std::strerror(code));
    }
    if (errno != EEXIST) throw Error(where, "must be writable", std::strerror(errno));
    std::string text;
    try {
      text = read_file(path, where);
    } catch (const Error&) {
      continue;  // it was just removed
    }
    const std::optional<Owner> owner = parse_owner(text);
    if (!owner) {  // it is being written, or a crash cut it off
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (!has_ended(*owner))
      throw Error(where, fmt::format("{}; where that run has ended, remove this file", kRule),
                  fmt::format("process {} on host {}", owner->process, owner->host));
    // When two processes take over at once, one may move away the file that the other has just made. It is
    // put back, and check() later tells each process whether the file that remains is its own.
    const std::string aside = fmt::format("{}/{}-ended-{}", directory_, name, ::getpid());
    if (std::rename(path.c_str(), aside.c_str()) != 0) continue;
    std::string moved;
    try {
      moved = read_file(aside, "'" + aside + "'");
    } catch (const Error&) {
    }
    std::error_code ignored;
    if (moved != text) std::filesystem::create_hard_link(aside, path, ignored);
    ::unlink(aside.c_str());
  }
  throw Error(where, fmt::format("{}; where no run is using it, remove this file", kRule),
              "a file that names no process");
}

bool DirectoryLock::held() const {
  if (!owner_.empty()) {
    const std::string path = directory_ + "/.lock-owner";
    try {
      return read_file(path, "'" + path + "'") == owner_;
    } catch (const Error&) {
      return false;
    }
  }
  struct stat mine {
  }, current{};
  return fd_ >= 0 && ::fstat(fd_, &mine) == 0 && ::stat((directory_ + "/.lock").c_str(), &current) == 0 &&
         mine.st_ino == current.st_ino && mine.st_dev == current.st_dev;
}

void DirectoryLock::check() {
  if (held()) return;
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  owner_.clear();
  try {
    acquire();
  } catch (const Error& error) {
    throw LockLost(error.where(),
                   "the run's lock was taken away while it ran, so it stops and writes no more",
                   error.found());
  }
}

void DirectoryLock::release() {
  if (!owner_.empty() && held()) ::unlink((directory_ + "/.lock-owner").c_str());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace meshloom::trainer
