// Self-tests of variants that no device is trusted with unseen (Variant::needs_self_test).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hal/cache/disk_cache.h"
#include "hal/device.h"
#include "kernels/core/catalog.h"

namespace meshloom::kernels {

struct SelfTestFailure {
  std::string variant;  // "matmul cooperative"
  std::string found;    // the call, and how far off its result was or what the driver said
};

// Runs each such variant of the device's backend on small cases of its op, in every float dtype it takes
// itself, and notes the verdicts on the device; none where it fits no case, or is experimental (Variant::experimental). Verdicts are kept in memory and on disk, by device, driver
// and kernel sources.
class SelfTest {
 public:
  explicit SelfTest(hal::DiskCache cache) : cache_(std::move(cache)) {}

  // Never throws: a variant that does is in quarantine. Returns what is, each once per device. The memory that tests took is
  // gone, and no part of the device's peak.
  std::vector<SelfTestFailure> run(hal::Device& device, const Catalog& catalog);

 private:
  hal::DiskCache cache_;
  std::map<std::string, std::string> known_;  // by cache key
};

}  // namespace meshloom::kernels
