// Files of lines that are never in memory as a whole.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/io/file.h"

namespace meshloom::trainer {

// Reads the lines of a file in turn, and any line again by where it stands. Lines end with LF or CR LF, the
// last one also with the file.
class LineFile {
 public:
  static constexpr std::int64_t kLongest = std::int64_t{64} << 20;  // bytes of a line

  // Throws Error for what is no readable file, or one of a known format that has no lines (file_kind.h); `where` names
  // it in errors. A pipe is refused: its lines could not be read again.
  LineFile(const std::string& path, std::string where);

  struct Line {
    std::int64_t number = 0;  // from 1
    std::int64_t offset = 0, bytes = 0;
    std::string text;
  };
  // False at the end. Throws Error for a line that is too long.
  bool next(Line& line);
  // Bytes [offset, offset + bytes), from any thread. Throws Error when the file has become shorter.
  std::string at(std::int64_t offset, std::int64_t bytes) const;
  const std::string& where() const { return where_; }

 private:
  bool fill();

  std::string where_;
  Descriptor file_;
  std::int64_t offset_ = 0, number_ = 0;  // of the next line
  std::string ahead_;                     // read, from ahead_[used_] on not given out yet
  std::size_t used_ = 0;
};

}  // namespace meshloom::trainer
