#include "backends/simt/host/quirks.h"

namespace meshloom::backends::simt {
namespace {

struct Entry {
  std::string_view pattern;  // part of the device's name
  Quirks quirks;
};

constexpr Entry kTable[] = {
    // Mesa's driver for the host's cores, behind Vulkan (lavapipe) or OpenCL (rusticl). It ends loops after 65,535
    // iterations, gathers texels but loads from storage buffers lane by lane through the stack, and grants kernels
    // of rusticl fewer invocations than the device reports.
    {"llvmpipe",
     {.driver = "llvmpipe",
      .max_loop_iterations = 60000,
      .splits_vectors = true,
      .zero_timestamps = true,
      .slow_storage_loads = true,
      .max_workgroup = 32}},
};
constexpr Quirks kNone{};

}  // namespace

const Quirks& quirks_of(std::string_view device_name) {
  for (const Entry& entry : kTable)
    if (device_name.find(entry.pattern) != std::string_view::npos) return entry.quirks;
  return kNone;
}

}  // namespace meshloom::backends::simt
