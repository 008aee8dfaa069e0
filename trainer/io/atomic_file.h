// Writes files atomically and durably: when a call returns, the file is on the disk (fsync). Every chunk of a
// file gets a checksum while it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

constexpr std::int64_t kChunkBytes = 1 << 20;

// One file as a manifest lists it.
struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> chunks;  // xxhash64 of each chunk of kChunkBytes; the last may be shorter
  bool operator==(const FileRecord&) const = default;
};

// A new file that is written piece by piece. Throws Error naming the path and the system's reason (disk full,
// no permission).
class ChecksummedFile {
 public:
  ChecksummedFile(const std::string& directory, const std::string& name);
  ~ChecksummedFile();
  ChecksummedFile(const ChecksummedFile&) = delete;
  ChecksummedFile& operator=(const ChecksummedFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Writes what is left, syncs and closes the file.
  FileRecord finish();

 private:
  void flush();
  std::string path_;
  FileRecord record_;
  std::vector<std::byte> chunk_;
  int fd_ = -1;
};

// Writes a new file with this content. Throws Error.
FileRecord write_new_file(const std::string& directory, const std::string& name, std::string_view content);

// Atomically replaces whatever has this name by a file with this content: readers see the old file or the new
// one, also after a crash. Links are replaced, never followed. Throws Error naming the path.
void write_file(const std::string& path, std::string_view content);

// Reads a file and computes its checksums.
FileRecord record_of(const std::string& directory, const std::string& name);

void make_directories(const std::string& path);
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Removes what it can and reports no failure.
void remove_tree(const std::string& path);

// A new directory that is removed in the end; what had its name before is removed too. Throws Error.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string path);
  ~ScratchDirectory() { remove_tree(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace meshloom::trainer
