// The drivers that the loader finds.
#pragma once

#include <memory>
#include <vector>

#include "hal/registry.h"

namespace meshloom::backends::opencl {

// See BackendEntry::drivers and use_only.
std::vector<hal::InstalledDriver> drivers();
std::shared_ptr<void> use_only(const std::vector<hal::InstalledDriver>& drivers);

}  // namespace meshloom::backends::opencl
