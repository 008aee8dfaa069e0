// Reads files line by line, without holding them in memory.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/io/file.h"

namespace meshloom::trainer {

// Reads the lines of a file in order, and any line again by its position. Lines end with LF or CR LF; the
// last line may also end with the file.
class LineFile {
 public:
  static constexpr std::int64_t kMaxLineBytes = std::int64_t{64} << 20;

  // `where` names the file in errors. Throws Error when it is no readable file, or of a known format without
  // lines (file_kind.h). A pipe is refused, because its lines could not be read again.
  LineFile(const std::string& path, std::string where);

  struct Line {
    std::int64_t number = 0;  // from 1
    std::int64_t offset = 0, bytes = 0;
    std::string text;
  };
  // False at the end. Throws Error for a line that is too long.
  bool next(Line& line);
  // Reads the bytes [offset, offset + bytes). Any thread may call this. Throws Error when the file has become
  // shorter.
  std::string at(std::int64_t offset, std::int64_t bytes) const;
  const std::string& where() const { return where_; }

 private:
  bool fill();

  std::string where_;
  Descriptor file_;
  std::int64_t offset_ = 0, number_ = 0;  // of the next line
  std::string buffer_;                    // bytes read; those from buffer_[used_] on belong to the next lines
  std::size_t used_ = 0;
};

}  // namespace meshloom::trainer
