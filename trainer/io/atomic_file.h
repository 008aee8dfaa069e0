// Files that are on the disk when a call returns, with a checksum of every chunk taken while they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

constexpr std::int64_t kChunkBytes = 1 << 20;

// What a manifest says of one file: the last chunk may be shorter.
struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> chunks;  // xxhash64 of each chunk
  bool operator==(const FileRecord&) const = default;
};

// A new file; throws Error naming the path and the system's reason (disk full, no permission).
class ChecksummedFile {
 public:
  ChecksummedFile(const std::string& directory, const std::string& name);
  ~ChecksummedFile();
  ChecksummedFile(const ChecksummedFile&) = delete;
  ChecksummedFile& operator=(const ChecksummedFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Syncs and closes.
  FileRecord finish();

 private:
  void flush();
  std::string path_;
  FileRecord record_;
  std::vector<std::byte> chunk_;
  int fd_ = -1;
};

// A new file with this content. Throws Error likewise.
FileRecord write_new_file(const std::string& directory, const std::string& name, std::string_view content);

// Puts a file with this content in the place of whatever has this name: whole or not at all, and on the disk when this
// returns. Links are replaced, never followed. Throws Error naming the path.
void write_file(const std::string& path, std::string_view content);

// Checksums of a file as it lies on the disk.
FileRecord record_of(const std::string& directory, const std::string& name);

void make_directories(const std::string& path);
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Best effort; says nothing.
void remove_tree(const std::string& path);

}  // namespace meshloom::trainer
