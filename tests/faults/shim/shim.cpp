// Loaded before the program (LD_PRELOAD): makes calls of the system and of drivers fail, or not happen, and writes down
// those that make files last. MESHLOOM_FAULTS holds faults separated by ';', each "CALL PATH FIRST COUNT ERRNO": of the calls
// to CALL with a path that contains PATH ("-": any), those from the FIRST-th on (counted from 1), COUNT of them, fail with
// ERRNO. Calls of drivers succeed without doing anything; they take "-" and 0. Calls: write rename flock vkQueueSubmit
// clEnqueueNDRangeKernel. MESHLOOM_FAULTS_LOG names a file that gets a line per sync and rename.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Fault {
  std::string call, path;
  long first = 0, count = 0;
  int code = 0;
  long seen = 0;
};

std::vector<Fault>& faults() {
  static std::vector<Fault> all = [] {
    std::vector<Fault> read;
    const char* text = std::getenv("MESHLOOM_FAULTS");
    std::istringstream list(text ? text : "");
    for (std::string one; std::getline(list, one, ';');) {
      Fault fault;
      std::istringstream(one) >> fault.call >> fault.path >> fault.first >> fault.count >> fault.code;
      read.push_back(fault);
    }
    return read;
  }();
  return all;
}

// The errno that this call fails with; 0 = it does not; -1 = it does nothing.
int fails(const char* call, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> guard(mutex);
  for (Fault& fault : faults()) {
    if (fault.call != call || (fault.path != "-" && path.find(fault.path) == std::string::npos)) continue;
    const long number = ++fault.seen;
    if (number >= fault.first && number < fault.first + fault.count) return fault.code ? fault.code : -1;
  }
  return 0;
}

std::string path_of(int fd) {
  char name[64], path[4096];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(name, path, sizeof path);
  return length < 0 ? std::string() : std::string(path, static_cast<std::size_t>(length));
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void log(const std::string& line) {
  const char* path = std::getenv("MESHLOOM_FAULTS_LOG");
  if (!path) return;
  std::FILE* file = std::fopen(path, "a");
  if (!file) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, std::size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  const int kept = errno;
  if (!faults().empty())
    if (const int code = fails("write", path_of(fd)); code > 0) {
      errno = code;
      return -1;
    }
  errno = kept;
  return real(fd, data, bytes);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (const int code = fails("rename", to); code > 0) {
    errno = code;
    return -1;
  }
  log(std::string("rename ") + to);
  return real(from, to);
}

int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  log("sync " + path_of(fd));
  return real(fd);
}

int fdatasync(int fd) {
  static const auto real = next<int (*)(int)>("fdatasync");
  log("sync " + path_of(fd));
  return real(fd);
}

int flock(int fd, int operation) noexcept {
  static const auto real = next<int (*)(int, int)>("flock");
  if (const int code = fails("flock", path_of(fd)); code > 0) {
    errno = code;
    return -1;
  }
  return real(fd, operation);
}

// As in vulkan_core.h and cl.h, which need not be there.
struct Submit {
  int type;
  const void* next;
  std::uint32_t waits;
  const void *semaphores, *stages;
  std::uint32_t command_buffers;
  const void* buffers;
  std::uint32_t signals;
  const void* signalled;
};

int vkQueueSubmit(void* queue, std::uint32_t count, const Submit* submits, std::uint64_t fence) {
  static const auto real = next<int (*)(void*, std::uint32_t, const Submit*, std::uint64_t)>("vkQueueSubmit");
  std::vector<Submit> copies(submits, submits + count);
  if (fails("vkQueueSubmit", "") != 0)
    for (Submit& submit : copies) submit.command_buffers = 0;  // signals all the same
  return real(queue, count, copies.data(), fence);
}

int clEnqueueNDRangeKernel(void* queue, void* kernel, unsigned dimensions, const std::size_t* offset,
                           const std::size_t* global, const std::size_t* local, unsigned waits, const void* events,
                           void** event) {
  static const auto real = next<int (*)(void*, void*, unsigned, const std::size_t*, const std::size_t*,
                                        const std::size_t*, unsigned, const void*, void**)>("clEnqueueNDRangeKernel");
  if (fails("clEnqueueNDRangeKernel", "") != 0) return 0;
  return real(queue, kernel, dimensions, offset, global, local, waits, events, event);
}

}  // extern "C"
