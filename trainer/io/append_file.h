// A file that records are appended to, and that survives write errors (disk full, I/O error): records that
// could not be written wait in memory, in order, and are tried again with the next record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

class AppendFile {
 public:
  // Opens or creates the file. Throws Error.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Returns "" when all records so far have been handed to the system, otherwise one line that says why not.
  // At most 64 MiB of records wait; later ones are dropped, and the line says how many.
  std::string add(std::string_view record);
  // Writes waiting records and syncs the file to the disk. Returns as add() does.
  std::string sync();

 private:
  std::string flush();
  std::string path_, pending_;
  std::int64_t dropped_ = 0;
  int fd_ = -1;
};

}  // namespace meshloom::trainer
