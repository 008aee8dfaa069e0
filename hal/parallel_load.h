// For devices that compile kernels on several threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

// Calls `work(i)` for i in [0, count) on threads, one per core of the host. An exception ends the work and is thrown again.
void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work,
                          const LoadProgress& progress);

// Compiles those of `specs` that `loaded` lacks, each once, by `compile(spec)`, which must be safe on several threads.
// `prepare(spec)` is called before, by this thread. `loaded` has the kernels by ExecutableSpec::key().
template <class Kernel, class Prepare, class Compile>
void load_missing(std::map<std::string, std::shared_ptr<Kernel>>& loaded,
                  std::span<const ExecutableSpec> specs, const Prepare& prepare, const Compile& compile,
                  const LoadProgress& progress) {
  std::vector<std::pair<const ExecutableSpec*, std::shared_ptr<Kernel>*>> missing;
  for (const ExecutableSpec& spec : specs) {
    auto* const slot = &loaded[spec.key()];
    if (*slot ||
        std::any_of(missing.begin(), missing.end(), [&](const auto& one) { return one.second == slot; }))
      continue;
    prepare(spec);
    missing.emplace_back(&spec, slot);
  }
  for_each_in_parallel(
      missing.size(), [&](std::size_t i) { *missing[i].second = compile(*missing[i].first); }, progress);
}

}  // namespace meshloom::hal
