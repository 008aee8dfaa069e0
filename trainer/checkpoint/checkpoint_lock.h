// A reader's hold on a checkpoint, so that the run that owns it does not remove it meanwhile.
#pragma once

#include <string>

#include "trainer/io/file.h"

namespace meshloom::trainer {

// A shared flock on the checkpoint's manifest: it ends with the process, however it ends. On a file system without flock
// it holds nothing, and a reader goes on with the next checkpoint when one disappears (open_newest).
class CheckpointReadLock {
 public:
  // Throws Error when there is no such manifest.
  explicit CheckpointReadLock(const std::string& checkpoint);

 private:
  Descriptor file_;
};

// What the owner holds while it moves a checkpoint away: no reader has begun, and none can.
class CheckpointRemovalLock {
 public:
  explicit CheckpointRemovalLock(const std::string& checkpoint);
  ~CheckpointRemovalLock();
  CheckpointRemovalLock(const CheckpointRemovalLock&) = delete;
  CheckpointRemovalLock& operator=(const CheckpointRemovalLock&) = delete;
  // False where a reader holds the checkpoint.
  bool granted() const { return granted_; }

 private:
  int fd_ = -1;
  bool granted_ = true;
};

}  // namespace meshloom::trainer
