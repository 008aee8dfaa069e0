#include "trainer/run/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hal/error.h"

namespace meshloom::trainer {

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/.lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error("'" + directory + "'", "the run's directory must be writable", std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const std::string why = errno == EWOULDBLOCK ? "another run that is using it" : std::strerror(errno);
    ::close(fd_);
    throw Error("'" + directory + "'", "one run at a time writes to a directory", why);
  }
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace meshloom::trainer
