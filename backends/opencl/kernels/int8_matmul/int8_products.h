// What the variants of int8_matmul for matrix units share.
#pragma once

#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matrix_tile.h"
#include "kernels/int8_matmul/int8_matmul.h"

namespace meshloom::backends::opencl {

// The sizes, as of a product of floats.
kernels::MatmulDims product_of(const kernels::CallView& call);
// Yes with the tile's parameters and `more`, unless it would be too many workgroups.
kernels::Fit fit_int8(const kernels::CallView& call, const hal::DeviceInfo& target,
                      const simt::MatrixTile& tile, const std::map<std::string, std::int64_t>& more = {});
// Records the product by the kernel with the tile's defines, `more` and those of int8_operands.inc.
void launch_int8(const kernels::EncodeArgs& args, std::string kernel, std::vector<hal::Define> more);

}  // namespace meshloom::backends::opencl
