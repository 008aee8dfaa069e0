// Rewrites SPIR-V of cooperative matrices for current drivers. The compiler supports only SPV_NV_cooperative_matrix; drivers
// accept SPV_KHR_cooperative_matrix, whose types include the use of a matrix. kernels/cooperative.inc is the other half.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshloom::backends::vulkan {

// Rewrites a module that uses the NV extension to the KHR extension; other modules are returned unchanged. The use of a matrix
// type follows from the SpecIds of its rows and columns: M is 1, N 2, K 3; with 4 instead of 3, the elements of A and B are
// bf16 (SPV_KHR_bfloat16), which the source declares as f16. In products with signed integer sums, A and B are signed. The
// quotient of two matrices becomes their elementwise product, which GLSL cannot express. Accesses to workgroup memory are made available
// and visible by the barriers between them rather than each by itself. Throws Error with `where` on a type of
// other extents.
std::vector<std::uint32_t> to_khr_cooperative_matrix(const std::vector<std::uint32_t>& words,
                                                     const std::string& where);

}  // namespace meshloom::backends::vulkan
