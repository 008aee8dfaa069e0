// The tiles of products on NVIDIA's tensor cores (mma_tile.inc), of 16-bit floats and of bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::opencl {

// `async` tiles of A and B at a time come by copies of 16 bytes, which do not wait; 0 = they come through registers.
struct MmaTile {
  simt::MatrixTile tile;
  std::int64_t async = 0;

  std::map<std::string, std::int64_t> params() const;
};

// The tiles that fit the device, the largest first, by each of these numbers of copies. `allow_async`: rows of A and B are multiples
// of 16 bytes.
std::vector<MmaTile> mma_tiles(const hal::DeviceInfo& target, hal::DType in, bool allow_async,
                               std::initializer_list<std::int64_t> asyncs);
std::optional<MmaTile> best_mma_tile(const hal::DeviceInfo& target, hal::DType in, bool allow_async,
                                     const simt::Product& product);
// ASYNC and STAGES of a choice with such parameters.
std::vector<hal::Define> stage_defines(const std::map<std::string, std::int64_t>& params);

}  // namespace meshloom::backends::opencl
