#include "backends/opencl/inspect/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "hal/error.h"

extern char** environ;

namespace meshloom::backends::opencl {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxOutput = std::size_t{256} << 20;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// The variables of this process, with others in their place.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all;
  for (char** one = environ; *one; ++one) {
    const std::string_view text = *one;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const std::string& other) { return other.starts_with(name); }))
      all.emplace_back(text);
  }
  all.insert(all.end(), variables.begin(), variables.end());
  return all;
}

}  // namespace

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string file = std::string(rest.substr(0, colon)) + "/" + name;
    std::error_code ignored;
    // An empty entry would be the current folder.
    if (colon != 0 && fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0)
      return fs::absolute(file).string();
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  }
  return {};
}

ProgramResult run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const std::string& folder, const std::vector<std::string>& variables,
                          double seconds) {
  std::vector<std::string> words{file}, settings = environment_with(variables);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw hal::Error(file, "must get a pipe", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  // A group of its own, so that what it starts ends with it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, file.c_str(), &actions, &attributes, pointers(words).data(),
                                   pointers(settings).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    throw hal::Error(file, "must be a program that can be started", std::strerror(failed));
  }
  ProgramResult result;
  std::string wrong;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::array<char, 65536> bytes{};
  while (wrong.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd ready{ends[0], POLLIN, 0};
    const int count = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (count == 0) {
      wrong = "it has not ended after " + std::to_string(static_cast<int>(seconds)) + " s";
    } else if (count > 0) {
      const ssize_t got = ::read(ends[0], bytes.data(), bytes.size());
      if (got == 0) break;
      if (got > 0) result.output.append(bytes.data(), static_cast<std::size_t>(got));
      if (result.output.size() > kMaxOutput) wrong = "it prints without end";
    }
  }
  ::close(ends[0]);
  if (!wrong.empty()) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!wrong.empty()) throw hal::Error(file, "must compile in a while", wrong);
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace meshloom::backends::opencl
