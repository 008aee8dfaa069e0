// Programs outside of this one, as compilers are.
#pragma once

#include <string>
#include <vector>

namespace meshloom::backends::opencl {

// The file of a program that stands in one of the folders of PATH; "" = there is none.
std::string find_program(const std::string& name);

struct ProgramResult {
  int code = 0;        // 128 + the signal where one ended it
  std::string output;  // of stdout and stderr together
};

// Runs a file with these arguments, without a shell and with nothing to read, in `folder`, with these variables
// ("NAME=VALUE") beside its own. It is ended after `seconds`. Throws Error when it cannot be started, takes longer, or
// prints more than 256 MiB.
ProgramResult run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const std::string& folder, const std::vector<std::string>& variables = {},
                          double seconds = 300);

}  // namespace meshloom::backends::opencl
