// What the kernels of AdamW share.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {

// The CONSTANTS of adamw.simt and adamw_8bit.simt.
std::vector<hal::Word> adamw_constants(std::int64_t count, const kernels::Attrs& attrs);

}  // namespace meshloom::backends::simt
