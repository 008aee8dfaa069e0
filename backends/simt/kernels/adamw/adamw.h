// What the kernels of AdamW share.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {

// The CONSTANTS of adamw.simt and adamw_8bit.simt.
std::vector<hal::Word> adamw_constants(std::int64_t count, const kernels::Attrs& attrs);

// Records an update with a copy of the parameter in 16 bits (kernels/adamw), where the call asks for one. A kernel has eight bindings at
// most: `fused` writes the copy beside p', m' and v' in the places of p, m and v; elsewhere `plain` is followed by a cast. The
// bindings that follow are those of either kernel.
using RecordUpdate = void (*)(const kernels::EncodeArgs& args);
void record_update(const kernels::EncodeArgs& args, RecordUpdate plain, RecordUpdate fused);
std::vector<hal::Binding> plain_update_bindings(const kernels::EncodeArgs& args);
std::vector<hal::Binding> fused_update_bindings(const kernels::EncodeArgs& args);

}  // namespace meshloom::backends::simt
