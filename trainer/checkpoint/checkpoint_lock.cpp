#include "trainer/checkpoint/checkpoint_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace meshloom::trainer {
namespace {

std::string manifest_of(const std::string& checkpoint) { return checkpoint + "/manifest.json"; }

}  // namespace

CheckpointReadLock::CheckpointReadLock(const std::string& checkpoint)
    : file_(open_file(manifest_of(checkpoint), "'" + manifest_of(checkpoint) + "'")) {
  while (::flock(file_.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
}

CheckpointRemovalLock::CheckpointRemovalLock(const std::string& checkpoint)
    // Opened for writing: network file systems lock exclusively only files that may be written.
    : fd_(::open(manifest_of(checkpoint).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
  granted_ = fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

CheckpointRemovalLock::~CheckpointRemovalLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace meshloom::trainer
