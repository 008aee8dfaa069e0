// Compiles many kernels at once.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "hal/device.h"

namespace meshloom::hal {

// Called by the thread that waits, with how many of how many kernels are loaded.
using LoadProgress = std::function<void(std::size_t done, std::size_t all)>;

// Loads all: on as many cores as its compiler can use where the device is a ParallelLoader, else one by one. Throws as
// Device::load does.
void load_all(Device& device, std::span<const ExecutableSpec> specs, const LoadProgress& progress = {});

// What devices implement that compile on several threads.
class ParallelLoader {
 public:
  virtual ~ParallelLoader() = default;
  virtual void load_in_parallel(std::span<const ExecutableSpec> specs, const LoadProgress& progress) = 0;
};

// For implementations: calls `work(i)` for i in [0, count) on threads, one per core of the host. An exception ends the work and is
// thrown again.
void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work,
                          const LoadProgress& progress);

}  // namespace meshloom::hal
