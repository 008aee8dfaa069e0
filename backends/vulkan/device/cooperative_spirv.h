// SPIR-V of cooperative matrices as today's drivers take it. The compiler knows SPV_NV_cooperative_matrix
// only; drivers take SPV_KHR_cooperative_matrix, whose types say what an operand is for.
// kernels/cooperative.inc is the other half.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshloom::backends::vulkan {

// Rewrites a module that uses the NV extension to the KHR one; others are left alone. A matrix type's use
// follows from the SpecIds of its rows and columns: M is 1, N 2, K 3; with 4 in place of 3, elements of A and
// B are bf16 (SPV_KHR_bfloat16), which the source calls f16. Products with sums of signed integers take A and
// B as signed. The quotient of two matrices becomes their product element by element, which GLSL has no name
// for. Throws Error with `where` on a type of other extents.
std::vector<std::uint32_t> to_khr_cooperative_matrix(const std::vector<std::uint32_t>& words,
                                                     const std::string& where);

}  // namespace meshloom::backends::vulkan
