// Compiled programs on disk, shared by processes. Losing a file costs a rebuild, never a result.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::hal {

// 128-bit hash of `text` as 32 hexadecimal digits.
std::string hash_text(std::string_view text);

class DiskCache {
 public:
  // MESHLOOM_CACHE_DIR, else XDG_CACHE_HOME/meshloom, else ~/.cache/meshloom. Set but empty
  // MESHLOOM_CACHE_DIR: off.
  static DiskCache from_environment();
  explicit DiskCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  bool enabled() const { return !folder_.empty(); }
  // `key` names everything the entry depends on; `kind` is the file's extension. Nothing when absent or
  // damaged.
  std::optional<std::vector<std::byte>> load(const std::string& kind, std::string_view key) const;
  // Appears whole or not at all. A full disk or an unwritable folder is not an error: the cache stays cold.
  void store(const std::string& kind, std::string_view key, std::span<const std::byte> data) const;

 private:
  std::filesystem::path path_of(const std::string& kind, std::string_view key) const;
  std::filesystem::path folder_;  // empty = off
};

}  // namespace meshloom::hal
