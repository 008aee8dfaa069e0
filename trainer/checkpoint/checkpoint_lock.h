// Locks that keep a run from removing a checkpoint while it is being read.
#pragma once

#include <string>

#include "trainer/io/file.h"

namespace meshloom::trainer {

// A reader's lock: a shared flock on the checkpoint's manifest, which the system releases when the process
// ends, however it ends. On a file system without flock it has no effect, and a reader whose checkpoint
// disappears tries the next one (open_newest).
class CheckpointReadLock {
 public:
  // Throws Error when there is no such manifest.
  explicit CheckpointReadLock(const std::string& checkpoint);

 private:
  Descriptor file_;
};

// The run's lock while it removes a checkpoint: an exclusive flock, which no reader can share.
class CheckpointRemovalLock {
 public:
  explicit CheckpointRemovalLock(const std::string& checkpoint);
  ~CheckpointRemovalLock();
  CheckpointRemovalLock(const CheckpointRemovalLock&) = delete;
  CheckpointRemovalLock& operator=(const CheckpointRemovalLock&) = delete;
  // False when a reader has locked the checkpoint.
  bool granted() const { return granted_; }

 private:
  int fd_ = -1;
  bool granted_ = true;
};

}  // namespace meshloom::trainer
