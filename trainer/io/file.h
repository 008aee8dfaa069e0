// Opens and reads files from outside. Unless a comment says so, no call waits for a writer that may never
// come.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace meshloom::trainer {

// An open file descriptor, which is closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;  // of a file that is no training data

// Opens a regular file for reading. Throws Error (where = `where`) for a missing path, for a file that may
// not be read, and for directories, pipes and devices.
Descriptor open_file(const std::string& path, const std::string& where);
std::int64_t file_bytes(const Descriptor& file, const std::string& where);

// Reads [offset, offset + bytes). Throws Error (where = `where`) when that fails or the file is shorter.
void read_at(const Descriptor& file, void* into, std::size_t bytes, std::int64_t offset,
             const std::string& where);
// Reads at most `bytes` from the current position; returns 0 at the end. Throws Error.
std::size_t read_some(const Descriptor& file, void* into, std::size_t bytes, const std::string& where);

// Reads the whole of a regular file. Throws Error as open_file does, and for more than `max_bytes`.
std::string read_file(const std::string& path, const std::string& where,
                      std::int64_t max_bytes = kMaxFileBytes);
// Reads a file of any length, or a pipe until its writers have closed it; waits for them. A pipe without a
// writer is empty.
std::string read_stream(const std::string& path, const std::string& where);

}  // namespace meshloom::trainer
