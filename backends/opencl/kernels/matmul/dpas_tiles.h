// The tiles of products on the matrix units of Intel's GPUs (dpas_tile.inc).
#pragma once

#include <vector>

#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::opencl {

// The tiles of a shape that fit the device, the largest first.
std::vector<simt::MatrixTile> dpas_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape);

}  // namespace meshloom::backends::opencl
