// A file that grows by records and outlives what goes wrong while it is written (disk full, I/O error): what could not be
// written waits in memory, in order, and is tried again with the next record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

class AppendFile {
 public:
  // Opens the file, or makes it. Throws Error.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // "" when all records so far are with the system, else one line that says why they are not. Records beyond the most that
  // may wait (64 MiB) are dropped, and the line says how many.
  std::string add(std::string_view record);
  // The same, and what is with the system reaches the disk.
  std::string sync();

 private:
  std::string flush();
  std::string path_, waiting_;
  std::int64_t dropped_ = 0;
  int fd_ = -1;
};

}  // namespace meshloom::trainer
