// The variants whose kernels OpenCL and Vulkan share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"

namespace meshloom::backends::simt {

// The variants of an op that one backend has for itself.
struct OwnVariants {
  std::vector<kernels::Variant> matrix_unit;  // come before the shared ones for GPUs
  std::vector<kernels::Variant>
      cpu_driver;  // for drivers that run on a CPU: come before those for any device
};

// Every op that these kernels compute, with its variants in order of preference. `own`: by op. Throws hal::Error for an
// op that has no place for variants of a backend.
std::vector<kernels::OpVariants> variants(std::map<std::string, OwnVariants> own = {});

// Which of attention's two ops a variant computes: "flash_attention" or "flash_attention_grad".
enum class Pass { forward, backward };

}  // namespace meshloom::backends::simt
