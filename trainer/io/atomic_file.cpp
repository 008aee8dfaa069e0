#include "trainer/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "hal/error.h"
#include "hal/write_all.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& rule) {
  throw Error("'" + path + "'", rule, std::strerror(errno));
}

}  // namespace

ChecksummedFile::ChecksummedFile(const std::string& directory, const std::string& name)
    : path_(directory + "/" + name), record_{name, 0, {}} {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) fail(path_, "a new file must be writable");
  chunk_.reserve(kChunkBytes);
}

ChecksummedFile::~ChecksummedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void ChecksummedFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::size_t take = std::min(data.size(), static_cast<std::size_t>(kChunkBytes) - chunk_.size());
    chunk_.insert(chunk_.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(take));
    data = data.subspan(take);
    if (chunk_.size() == static_cast<std::size_t>(kChunkBytes)) flush();
  }
}

void ChecksummedFile::flush() {
  record_.chunks.push_back(XXH64(chunk_.data(), chunk_.size(), 0));
  record_.bytes += static_cast<std::int64_t>(chunk_.size());
  if (!hal::write_all(fd_, chunk_)) fail(path_, "writing must succeed");
  chunk_.clear();
}

FileRecord ChecksummedFile::finish() {
  if (!chunk_.empty()) flush();
  if (::fsync(fd_) != 0) fail(path_, "the file must reach the disk");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail(path_, "writing must succeed");
  return record_;
}

FileRecord write_new_file(const std::string& directory, const std::string& name, std::string_view content) {
  ChecksummedFile file(directory, name);
  file.write(content);
  return file.finish();
}

void write_file(const std::string& path, std::string_view content) {
  const std::filesystem::path whole(path);
  const std::string folder = whole.has_parent_path() ? whole.parent_path().string() : ".";
  std::string temporary;
  int fd = -1;
  for (int i = 0; fd < 0; ++i) {
    temporary = path + "." + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp";
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && (errno != EEXIST || i == 99)) fail(path, "the file must be writable");
  }
  try {
    const bool good = hal::write_all(fd, std::as_bytes(std::span(content))) && ::fsync(fd) == 0;
    const int code = errno;
    const bool closed = ::close(fd) == 0;
    if (!good) errno = code;
    if (!good || !closed) fail(path, "the file must be writable");
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(folder);
}

FileRecord record_of(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name, where = "'" + path + "'";
  const Descriptor file = open_file(path, where);
  FileRecord record{name, 0, {}};
  std::vector<std::byte> chunk(kChunkBytes);
  for (;;) {
    std::size_t filled = 0;
    while (filled < chunk.size()) {
      const std::size_t got = read_some(file, chunk.data() + filled, chunk.size() - filled, where);
      if (got == 0) break;
      filled += got;
    }
    if (filled == 0) return record;
    record.chunks.push_back(XXH64(chunk.data(), filled, 0));
    record.bytes += static_cast<std::int64_t>(filled);
  }
}

void make_directories(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) throw Error("'" + path + "'", "the directory must exist or be creatable", code.message());
  if (!std::filesystem::is_directory(path, code))
    throw Error("'" + path + "'", "must be a directory", "a file");
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(path, "the directory must be readable");
  const int result = ::fsync(fd);
  ::close(fd);
  if (result != 0) fail(path, "the directory must reach the disk");
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "renaming '" + from + "' to it must succeed");
}

void remove_tree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

ScratchDirectory::ScratchDirectory(std::string path) : path_(std::move(path)) {
  remove_tree(path_);
  make_directories(path_);
}

}  // namespace meshloom::trainer
