// One run per directory.
#pragma once

#include <string>

namespace meshloom::trainer {

// Holds DIR/.lock while it lives; throws Error when another process does.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace meshloom::trainer
