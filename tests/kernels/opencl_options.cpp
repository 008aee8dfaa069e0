// Kernels are compiled without the optimizer, as most of the time of these tests is PoCL's compiling. With MESHLOOM_SLOW_CASES and
// under scripts/test-drivers drivers compile as they do for users, and so they do in all other test programs.
#include <cstdlib>

#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

[[maybe_unused]] const bool kWithoutOptimizer =
    !slow_cases() && !std::getenv("MESHLOOM_ANY_DRIVER") &&
    ::setenv("MESHLOOM_OPENCL_OPTIONS", "-cl-opt-disable", /*overwrite=*/0) == 0;

}  // namespace
}  // namespace meshloom::tests
