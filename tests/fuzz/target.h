// Shared by the fuzz targets. Each target file is for one parser of untrusted files: it passes the bytes to
// the parser and uses the result. A refusal is fine; any exception but hal::Error, a crash, a sanitizer's
// report, a slow input or gigabytes of memory is a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "hal/error.h"

namespace meshloom::tests {

// Runs `fn`. A refusal must be one line that is printable text.
template <class Fn>
void refusal_or_not(Fn&& fn) {
  try {
    fn();
  } catch (const hal::Error& error) {
    for (const char* c = error.what(); *c; ++c)
      if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f) {
        std::fprintf(stderr, "not one printable line: %s\n", error.what());
        __builtin_trap();
      }
  }
}

// A file in memory, for parsers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace meshloom::tests

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
