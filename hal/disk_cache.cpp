#include "hal/disk_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>

#include "hal/cache_folder.h"

namespace meshloom::hal {
namespace {

// In front of every file: what it must be, how long, and a checksum.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t bytes;
  XXH128_hash_t payload, key;
};
constexpr std::array<char, 8> kMagic{'m', 'e', 's', 'h', 'c', 'a', 'c', '1'};

Header header_for(std::string_view key, std::span<const std::byte> data) {
  return {kMagic, data.size(), XXH3_128bits(data.data(), data.size()), XXH3_128bits(key.data(), key.size())};
}

}  // namespace

std::string hash_text(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

DiskCache DiskCache::from_environment() { return DiskCache{cache_folder()}; }

std::filesystem::path DiskCache::path_of(const std::string& kind, std::string_view key) const {
  return folder_ / (hash_text(key) + "." + kind);
}

std::optional<std::vector<std::byte>> DiskCache::load(const std::string& kind, std::string_view key) const {
  if (!enabled()) return std::nullopt;
  std::ifstream in(path_of(kind, key), std::ios::binary | std::ios::ate);
  if (!in) return std::nullopt;
  const std::streamoff size = in.tellg();
  Header found{};
  if (size < static_cast<std::streamoff>(sizeof found)) return std::nullopt;
  std::vector<std::byte> data(static_cast<std::size_t>(size) - sizeof found);
  in.seekg(0);
  in.read(reinterpret_cast<char*>(&found), sizeof found);
  in.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  const Header want = header_for(key, data);
  if (!in || found.magic != want.magic || found.bytes != want.bytes ||
      !XXH128_isEqual(found.payload, want.payload) || !XXH128_isEqual(found.key, want.key))
    return std::nullopt;
  return data;
}

void DiskCache::store(const std::string& kind, std::string_view key, std::span<const std::byte> data) const {
  if (!enabled()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::filesystem::path path = path_of(kind, key);
  std::string temporary = path.string() + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return;
  const Header header = header_for(key, data);
  auto put = [&](const void* from, std::size_t bytes) {
    const char* at = static_cast<const char*>(from);
    while (bytes > 0) {
      const ssize_t n = ::write(file, at, bytes);
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  };
  const bool written = put(&header, sizeof header) && put(data.data(), data.size());
  const bool closed = ::close(file) == 0;
  if (!written || !closed || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

}  // namespace meshloom::hal
