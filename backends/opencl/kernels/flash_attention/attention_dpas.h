// What the variants of attention on the matrix units of Intel's GPUs share on the host (attention_dpas.inc).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backends/opencl/device/dpas.h"
#include "backends/opencl/kernels/flash_attention/attention_mma.h"

namespace meshloom::backends::opencl {

// The reason why no kernel here computes the call, whatever its tile, or "".
std::string unsupported_attention_dpas(const kernels::CallView& call, const hal::DeviceInfo& target);
// The reason where no tile fits.
std::string unsupported_heads(const kernels::AttentionDims& d, const hal::DeviceInfo& target);

// Whether a lane that holds so many registers leaves enough to the rest, by what the compilers spill: own rows stand in registers only
// where more is left, since they are held all the time.
constexpr bool leaves_registers(std::int64_t held) { return held <= 192; }
constexpr bool leaves_registers_to_own_rows(std::int64_t held) { return held <= 176; }
// Tiles to choose from, the better of the same number of rows first. Two rows per lane share what is loaded of the other side, which
// pays where a subgroup has 8 lanes, since a block then is for few rows. Own rows in registers, as `own_shared` says that a tile has
// them or not, leave memory to more workgroups.
std::vector<AttentionTile> tiles_to_try(std::int64_t lanes,
                                        const std::function<bool(const AttentionTile&)>& own_shared);
// Bytes of streamed rows in workgroup memory: along their features, and along the rows.
std::int64_t rows_bytes(const AttentionTile& tile, std::int64_t features);
std::int64_t pairs_bytes(const AttentionTile& tile, std::int64_t features);
// A lane's registers for its copies of a tile of K and V.
std::int64_t registers_of_tile(const AttentionTile& tile, const kernels::AttentionDims& d);

}  // namespace meshloom::backends::opencl
