// What the variants of attention on the matrix units of Intel's GPUs share on the host (attention_dpas.inc).
#pragma once

#include <cstdint>
#include <string>

#include "backends/opencl/device/dpas.h"
#include "backends/opencl/kernels/flash_attention/attention_mma.h"

namespace meshloom::backends::opencl {

// The reason why no kernel here computes the call, whatever its tile, or "".
std::string unsupported_attention_dpas(const kernels::CallView& call, const hal::DeviceInfo& target);
// The reason where no tile fits.
std::string unsupported_heads(const kernels::AttentionDims& d, const hal::DeviceInfo& target);

// Bytes of streamed rows in workgroup memory: along their features, and along the rows.
std::int64_t rows_bytes(const AttentionTile& tile, std::int64_t features);
std::int64_t pairs_bytes(const AttentionTile& tile, std::int64_t features);
// A lane's registers for its copies of a tile of K and V.
std::int64_t registers_of_tile(const AttentionTile& tile, const kernels::AttentionDims& d);

}  // namespace meshloom::backends::opencl
