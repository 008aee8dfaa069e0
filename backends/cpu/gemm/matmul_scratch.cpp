#include "backends/cpu/gemm/matmul_scratch.h"

#include "hal/host_memory.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {

void cut_scratch(std::span<const std::int64_t> floats, std::span<float*> pieces) {
  constexpr std::int64_t kFloats = hal::kHostAlignment / sizeof(float);  // pieces start at multiples of these
  thread_local hal::HostMemory memory;
  thread_local std::int64_t held = 0;
  std::int64_t wanted = 0;
  for (const std::int64_t count : floats) wanted += hal::round_up(count, kFloats);
  if (wanted > held) {
    held = 0;
    memory.reset();
    memory = hal::host_memory(static_cast<std::size_t>(wanted) * sizeof(float));
    held = wanted;
  }
  auto* at = reinterpret_cast<float*>(memory.get());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    pieces[i] = at;
    at += hal::round_up(floats[i], kFloats);
  }
}

}  // namespace meshloom::backends::cpu
