// One run per directory.
#pragma once

#include <string>

#include "hal/error.h"

namespace meshloom::trainer {

// The directory is another run's now: nothing may be written to it any more.
class LockLost : public hal::Error {
 public:
  using Error::Error;
};

// Holds a directory while it lives: DIR/.lock by flock, which ends with the process, however it ends. Where the file
// system has no flock (Lustre without it, some network file systems), DIR/.lock-owner says who holds it: process, its
// start, host and boot. Such a file is taken over when its process has ended, or its host has started anew; that of
// another host is not, because nobody can tell from here: whoever knows that it has ended removes the file.
class DirectoryLock {
 public:
  // Throws Error when another process holds it.
  explicit DirectoryLock(std::string directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // Before anything is committed: takes the lock again where someone removed it, throws LockLost where another holds it.
  void check();

 private:
  void acquire();
  void acquire_owner_file();
  bool held() const;
  void release();

  std::string directory_;
  std::string owner_;  // what DIR/.lock-owner says; "" = held by flock
  int fd_ = -1;
};

}  // namespace meshloom::trainer
