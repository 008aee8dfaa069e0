#include "hal/cache/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "hal/write_all.h"

namespace meshloom::hal {
namespace {

// The header of every file: magic, length and a checksum.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t bytes;
  XXH128_hash_t payload, key;
};
constexpr std::array<char, 8> kMagic{'m', 'e', 's', 'h', 'c', 'a', 'c', '1'};

constexpr std::size_t kDigits = 32;  // at the beginning of an entry's name
constexpr std::string_view kTemporary = ".tmp";
constexpr time_t kOldTemporary = 24 * 3600;  // seconds after which its writer is assumed dead

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Whether only this user can have written it.
bool is_own(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool read_all(int fd, void* into, std::size_t bytes) {
  for (char* at = static_cast<char*>(into); bytes > 0;) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void say_unused(const std::filesystem::path& folder, const char* found) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true))
    std::fprintf(stderr,
                 "note: the cache folder '%s' is not used: it must be a folder of this user that nobody else "
                 "may write to "
                 "(chmod go-w), but is %s\n",
                 folder.c_str(), found);
}

std::string name_of(const std::string& kind, std::string_view key) { return hash_text(key) + "." + kind; }

}  // namespace

std::filesystem::path cache_folder() {
  if (const char* folder = std::getenv("MESHLOOM_CACHE_DIR")) return folder;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder)
    return std::filesystem::path(folder) / "meshloom";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "meshloom";
  return {};
}

std::string hash_text(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

DiskCache DiskCache::from_environment() { return DiskCache{cache_folder()}; }

int DiskCache::open_folder() const {
  if (!enabled()) return -1;
  Descriptor folder{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  struct stat status {};
  if (folder.fd < 0) {
    if (errno == ENOTDIR) say_unused(folder_, "none");
    return -1;
  }
  if (::fstat(folder.fd, &status) != 0) return -1;
  if (!is_own(status)) {
    say_unused(folder_, status.st_uid != ::geteuid() ? "another user's" : "writable by others");
    return -1;
  }
  return std::exchange(folder.fd, -1);
}

std::optional<std::vector<std::byte>> DiskCache::load(const std::string& kind, std::string_view key) const {
  const Descriptor folder{open_folder()};
  if (folder.fd < 0) return std::nullopt;
  // O_NONBLOCK, so that a pipe with the name of an entry does not block.
  const Descriptor file{
      ::openat(folder.fd, name_of(kind, key).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_own(status))
    return std::nullopt;
  Header found{};
  const std::int64_t bytes = status.st_size - static_cast<std::int64_t>(sizeof found);
  if (bytes < 0 || bytes > kMaxEntryBytes || !read_all(file.fd, &found, sizeof found)) return std::nullopt;
  if (found.magic != kMagic || found.bytes != static_cast<std::uint64_t>(bytes) ||
      !XXH128_isEqual(found.key, XXH3_128bits(key.data(), key.size())))
    return std::nullopt;
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  if (!read_all(file.fd, data.data(), data.size()) ||
      !XXH128_isEqual(found.payload, XXH3_128bits(data.data(), data.size())))
    return std::nullopt;
  ::futimens(file.fd, nullptr);  // sets the time of the last use, see trim()
  return data;
}

void DiskCache::store(const std::string& kind, std::string_view key, std::span<const std::byte> data) const {
  if (!enabled() || static_cast<std::int64_t>(data.size()) > std::min(kMaxEntryBytes, max_bytes_)) return;
  std::error_code error;
  if (folder_.has_parent_path()) std::filesystem::create_directories(folder_.parent_path(), error);
  ::mkdir(folder_.c_str(), 0700);
  const Descriptor folder{open_folder()};
  if (folder.fd < 0) return;
  static std::atomic<unsigned> count = 0;
  const std::string name = name_of(kind, key);
  const std::string temporary =
      name + "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + std::string(kTemporary);
  Descriptor file{
      ::openat(folder.fd, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (file.fd < 0) return;
  const Header header{kMagic, data.size(), XXH3_128bits(data.data(), data.size()),
                      XXH3_128bits(key.data(), key.size())};
  const bool written = write_all(file.fd, std::as_bytes(std::span(&header, 1))) && write_all(file.fd, data);
  const bool closed = ::close(std::exchange(file.fd, -1)) == 0;
  if (!written || !closed || ::renameat(folder.fd, temporary.c_str(), folder.fd, name.c_str()) != 0)
    ::unlinkat(folder.fd, temporary.c_str(), 0);
  else
    trim(folder.fd);
}

void DiskCache::trim(int folder) const {
  struct Entry {
    std::string name;
    std::int64_t bytes;
    timespec used;
  };
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!list) {
    if (copy >= 0) ::close(copy);
    return;
  }
  std::vector<Entry> entries;
  std::int64_t total = 0;
  const time_t now = ::time(nullptr);
  while (const dirent* at = ::readdir(list.get())) {
    const std::string name = at->d_name;
    // Other files in the folder must not be removed.
    if (name.size() <= kDigits || name[kDigits] != '.' ||
        name.find_first_not_of("0123456789abcdef") != kDigits)
      continue;
    struct stat status {};
    if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
      continue;
    if (name.ends_with(kTemporary)) {
      if (now - status.st_mtime > kOldTemporary) ::unlinkat(folder, name.c_str(), 0);
      continue;
    }
    entries.push_back({name, status.st_size, status.st_mtim});
    total += status.st_size;
  }
  if (total <= max_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& entry : entries) {
    if (total <= max_bytes_) return;
    if (::unlinkat(folder, entry.name.c_str(), 0) == 0) total -= entry.bytes;
  }
}

}  // namespace meshloom::hal
