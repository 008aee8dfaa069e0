// Compiled programs on disk, shared by processes of one user. Losing a file costs a rebuild, never a result.
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

// 128-bit hash of `text` as 32 hexadecimal digits.
std::string hash_text(std::string_view text);

// Entries are code that will be run, and a checksum is no secret, so nothing is taken from others: a folder
// that belongs to another user or that others may write to is not used (a note on stderr says so, once), nor
// is an entry that does, or that is no regular file. The folder is made with mode 0700 where there is none.
class DiskCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;         // of all entries
  static constexpr std::int64_t kMaxEntryBytes = std::int64_t{256} << 20;  // bytes; larger ones are not kept

  // MESHLOOM_CACHE_DIR, else XDG_CACHE_HOME/meshloom, else ~/.cache/meshloom. Set but empty
  // MESHLOOM_CACHE_DIR: off.
  static DiskCache from_environment();
  explicit DiskCache(std::filesystem::path folder, std::int64_t max_bytes = kMaxBytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  bool enabled() const { return !folder_.empty(); }
  // `key` names everything the entry depends on; `kind` is the file's extension. Nothing when absent or
  // damaged.
  std::optional<std::vector<std::byte>> load(const std::string& kind, std::string_view key) const;
  // Appears whole or not at all. Entries that were not used for longest make room for it. A full disk or an
  // unwritable folder is not an error: the cache stays cold.
  void store(const std::string& kind, std::string_view key, std::span<const std::byte> data) const;

 private:
  // A descriptor of the folder; -1 when there is none that may be used.
  int open_folder() const;
  void trim(int folder) const;

  std::filesystem::path folder_;  // empty = off
  std::int64_t max_bytes_;
};

}  // namespace meshloom::hal
