// Products with fewer tiles of C than the device has cores: K is cut into parts that workgroups sum side by
// side (split-K), and a second kernel adds up what they leave in the workspace.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// How a kernel goes through a product.
struct Tiles {
  std::array<std::int64_t, 3> groups;  // workgroups along N, M and the batch
  std::int64_t step;                   // of K
  std::int64_t per_step, fixed;        // loop iterations of an invocation (see k_depth)
};

// The fit of a product in `tiles`: `params` and how K is cut, which is "depth" for parts one after the other
// (see k_parts) and, only where there are several side by side, "parts".
kernels::Fit fit_product(const std::map<std::string, std::int64_t>& params, const kernels::MatmulDims& dims,
                         const hal::DeviceInfo& target, const Tiles& tiles);
// Other numbers of parts too, one of them 1: what tuning tries.
std::vector<kernels::Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                               const kernels::MatmulDims& dims, const hal::DeviceInfo& target,
                                               const Tiles& tiles);

// Records a product that is cut as args.choice says. `tiles` is a kernel of matmul's common interface
// (matmul_epilogue.inc, OWN_SHARE) with its own defines, bindings and constants, which come behind the common
// ones.
void launch_product(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims, const Launch& tiles);

}  // namespace meshloom::backends::simt
