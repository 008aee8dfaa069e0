// Runs a command through the shell.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace meshloom::tests {

struct ShellResult {
  int code = 0;
  std::string said;  // stdout and stderr
};

// A signal that ends the command is the code 128 + its number; -1 = there is no shell.
inline ShellResult run_in_shell(const std::string& command) {
  ShellResult result;
  std::FILE* pipe = ::popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (!pipe) return {-1, "no shell"};
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.said.append(buffer, count);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace meshloom::tests
