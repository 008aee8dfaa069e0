// Runs a program and interferes with its file operations, whichever library makes them: system calls are
// caught with seccomp and ptrace, so that nothing is preloaded and a sanitizer's build can be run too. Linux
// on x86-64.
#pragma once

#include <string>
#include <vector>

namespace meshloom::tests {

// What is done at one file operation. Operations are the system calls that change files below a folder
// (opening for writing, writing, truncating, syncing, renaming, removing, making directories and links),
// counted from 0.
struct FileFault {
  enum class Kind {
    none,         // only counts
    kill_before,  // SIGKILL instead of the operation
    kill_after,   // SIGKILL when it is done
    kill_torn,    // a write puts half of its bytes, then SIGKILL; other operations as kill_after
    fail,         // the operation returns `error`, and nothing is done
    fail_from,    // so does every later one that needs room on the disk (all but renames and removals)
  };
  Kind kind = Kind::none;
  int at = -1;
  int error = 0;  // ENOSPC, EIO, ...
};

struct TracedRun {
  int code = 0;                         // the exit status; 128 + the signal's number after a signal
  bool injected = false;                // whether the operation was reached
  std::vector<std::string> operations;  // "write step-00000002/model.safetensors"
  std::string out, err;
  // Lines of standard error that are not notes.
  std::vector<std::string> errors() const;
};

// Why no program can be traced here; empty where one can.
std::string why_not_traced();

// `arguments[0]` is the program's path. `folder` is an absolute path. The environment is inherited.
TracedRun run_traced(const std::vector<std::string>& arguments, const std::string& folder,
                     const FileFault& fault = {});

}  // namespace meshloom::tests
