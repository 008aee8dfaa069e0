// Allows one run per directory.
#pragma once

#include <string>

#include "hal/error.h"

namespace meshloom::trainer {

// Another run has taken the directory: this one must not write to it any more.
class LockLost : public hal::Error {
 public:
  using Error::Error;
};

// Holds the lock of a directory for its lifetime. The lock is a flock on DIR/.lock, which the system releases
// when the process ends, however it ends. Where the file system has no flock (Lustre without the option, some
// network file systems), the file DIR/.lock-owner names the owner: its process, when that started, its host
// and the host's boot. Such a file is taken over when its process has ended or its host has rebooted. The
// file of another host is never taken over, because this host cannot tell whether that process still runs:
// someone who knows must remove the file.
class DirectoryLock {
 public:
  // Throws Error when another process holds it.
  explicit DirectoryLock(std::string directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // To be called before anything is committed. Takes the lock again when someone has removed it; throws
  // LockLost when another process holds it.
  void check();

 private:
  void acquire();
  void acquire_owner_file();
  bool held() const;
  void release();

  std::string directory_;
  std::string owner_;  // the contents of DIR/.lock-owner; "" = held by flock
  int fd_ = -1;
};

}  // namespace meshloom::trainer
