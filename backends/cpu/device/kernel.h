// A kernel of the CPU backend: a function over a range of work items, run by the backend's thread pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/device/schedule.h"
#include "hal/device.h"

namespace meshloom::backends::cpu {

struct KernelArgs {
  std::span<std::byte* const> buffers;  // one per binding, at the binding's offset
  std::span<const std::int64_t> bytes;  // of each binding
  const hal::Word* constants;
  std::array<std::uint32_t, 3> groups;  // of the dispatch

  template <typename T = float>
  T* at(std::size_t i) const {
    return reinterpret_cast<T*>(buffers[i]);
  }
};

// Runs work items [begin, end) of groups[0] * groups[1] * groups[2], flattened with groups[0] fastest.
// `worker`, in [0, number of workers), is unique among the calls that run at once: an index for per-thread scratch.
// Results must not depend on how the items are cut into ranges.
using KernelFunction = void (*)(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

// ExecutableSpec::kernel selects a kernel by name. The CPU ignores defines: parameters are passed as constants.
struct Kernel {
  std::string name;
  KernelFunction run;
  Schedule schedule = Schedule::guided;
};

}  // namespace meshloom::backends::cpu
