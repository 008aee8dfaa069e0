// Compiles GLSL to SPIR-V at run time; results are stored on disk by source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/cache/disk_cache.h"

namespace meshloom::backends::vulkan {

// A compute shader for Vulkan 1.2. Throws Error with `where` and the first lines of the compiler's log.
std::vector<std::uint32_t> compile_glsl(const std::string& source, const std::string& where,
                                        const hal::DiskCache& cache);

}  // namespace meshloom::backends::vulkan
