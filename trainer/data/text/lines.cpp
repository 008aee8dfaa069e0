#include "trainer/data/text/lines.h"

#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "trainer/data/text/file_kind.h"

namespace meshloom::trainer {

LineFile::LineFile(const std::string& path, std::string where)
    : where_(std::move(where)), file_(open_file(path, where_)) {
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(file_bytes(file_, where_), kHeadBytes)),
                   '\0');
  read_at(file_, head.data(), head.size(), 0, where_);
  check_lines_of_json(head, path, where_);
}

bool LineFile::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  char block[1 << 16];
  const std::size_t got = read_some(file_, block, sizeof block, where_);
  buffer_.append(block, got);
  return got > 0;
}

bool LineFile::next(Line& line) {
  std::size_t searched = 0;  // bytes of the buffer
  std::size_t end;
  while ((end = buffer_.find('\n', used_ + searched)) == std::string::npos) {
    searched = buffer_.size() - used_;
    if (static_cast<std::int64_t>(searched) > kMaxLineBytes)
      throw Error(where_ + ", line " + std::to_string(number_ + 1),
                  "a line must be at most " + std::to_string(kMaxLineBytes >> 20) + " MiB long",
                  "a longer one");
    if (!fill()) break;
  }
  const std::size_t taken = (end == std::string::npos ? buffer_.size() : end + 1) - used_;
  if (taken == 0) return false;
  line.text.assign(buffer_, used_, taken);
  while (!line.text.empty() && (line.text.back() == '\n' || line.text.back() == '\r')) line.text.pop_back();
  line.number = ++number_;
  line.offset = offset_;
  line.bytes = static_cast<std::int64_t>(line.text.size());
  offset_ += static_cast<std::int64_t>(taken);
  used_ += taken;
  return true;
}

std::string LineFile::at(std::int64_t offset, std::int64_t bytes) const {
  if (offset + bytes > file_bytes(file_, where_))
    throw Error(where_, "the file must not change while a run uses it", "it has become shorter");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  read_at(file_, text.data(), text.size(), offset, where_);
  return text;
}

}  // namespace meshloom::trainer
