// A disk cache of compiled programs, shared by the processes of one user. Losing a file costs a rebuild,
// never a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::hal {

// The folder of caches that persist between runs: MESHLOOM_CACHE_DIR, else XDG_CACHE_HOME/meshloom, else
// ~/.cache/meshloom; it need not exist. Empty when there is no cache: MESHLOOM_CACHE_DIR is empty, or none of
// these is known.
std::filesystem::path cache_folder();

// The 128-bit hash of `text` as 32 hexadecimal digits.
std::string hash_text(std::string_view text);

// Entries are code that will be executed, and anyone can compute a checksum, so nothing is read that another
// user could have written: a folder that belongs to another user or is writable by others is not used (a note
// on stderr says so, once), and neither is such an entry, or one that is no regular file. A missing folder is
// created with mode 0700.
class DiskCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;         // of all entries together
  static constexpr std::int64_t kMaxEntryBytes = std::int64_t{256} << 20;  // larger entries are not stored

  // The cache in cache_folder(); off when that is empty.
  static DiskCache from_environment();
  explicit DiskCache(std::filesystem::path folder, std::int64_t max_bytes = kMaxBytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  bool enabled() const { return !folder_.empty(); }
  // `key` names everything that the entry depends on; `kind` is the file's extension. Empty when there is no
  // entry or it is damaged.
  std::optional<std::vector<std::byte>> load(const std::string& kind, std::string_view key) const;
  // Writes the entry atomically, and removes the least recently used entries to make room. A full disk or an
  // unwritable folder is no error.
  void store(const std::string& kind, std::string_view key, std::span<const std::byte> data) const;

 private:
  // A descriptor of the folder; -1 when it may not be used.
  int open_folder() const;
  void trim(int folder) const;

  std::filesystem::path folder_;  // empty = off
  std::int64_t max_bytes_;
};

}  // namespace meshloom::hal
