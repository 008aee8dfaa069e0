#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/fuzz/target.h"

namespace meshloom::tests {

MemoryFile::MemoryFile(std::string_view bytes) : fd_(memfd_create("input", 0)) {
  if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

MemoryFile::~MemoryFile() { close(fd_); }

}  // namespace meshloom::tests
