// What drivers do that their limits and features do not tell, as one table from driver names to quirks.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshloom::backends::simt {

struct Quirks {
  std::string_view driver;               // as messages name it; empty = a driver without quirks
  std::int64_t max_loop_iterations = 0;  // over all loops of an invocation, which end silently; 0 = unlimited
  bool splits_vectors = false;      // vectors are taken apart, which makes kernels of vectors slow to compile
  bool zero_timestamps = false;     // OpenCL: timestamps are offered, and all are 0
  bool slow_storage_loads = false;  // Vulkan: loads from storage buffers are much slower than texel fetches
  std::int32_t max_workgroup = 0;   // OpenCL: fewer invocations than the driver says; 0 = as it says
};

// The quirks of the driver whose device has this name.
const Quirks& quirks_of(std::string_view device_name);

}  // namespace meshloom::backends::simt
