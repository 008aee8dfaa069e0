// `meshloom kernels --inspect`: what the driver's compiler makes of a call.
#pragma once

#include <string>
#include <vector>

#include "trainer/cli/command.h"

namespace meshloom::trainer {

struct InspectOptions {
  std::vector<std::string>
      calls;         // "matmul f16 4096x4096x4096:tb", or "spirv FILE 0=256 subgroup=64" for another's shader
  std::string file;  // of more calls, one a line
  std::string op;    // when not empty, calls begin behind it
  std::string device, as, variant;
  std::string folder;       // for what was compiled; "" = it is not written
  std::uint32_t fused = 1;  // dispatches of a launch
  bool rank = false;        // every way to run the call, the best by the compiler first
  bool json = false, markdown = false;
};

// Returns 1 when a call could not be inspected, which is said on stderr. Throws Error where none can.
int inspect_kernels(const Registries& registries, const InspectOptions& options);

}  // namespace meshloom::trainer
