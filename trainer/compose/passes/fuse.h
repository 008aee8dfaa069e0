// Fewer, larger calls with the same result. Nothing heavy is ever computed twice.
//
//   simplify            copies that change nothing, reshapes of reshapes, roots and calls that nobody reads
//   fuse_epilogues      matmul + bias, + residual (a sum of two products too), + activation
//   fuse_elementwise    chains of elementwise calls with one reader become one call
//
// Values that a later phase reads as well are left alone, so an activation moves into its matmul only where
// the backward pass does not need what came before it.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// Longest chain that is fused, in nodes of the expression: device compilers have limits.
constexpr std::size_t kMaxFusedNodes = 96;

kernels::Program simplify(kernels::Program program, const kernels::Catalog& catalog);
kernels::Program fuse_epilogues(kernels::Program program, const kernels::Catalog& catalog);
kernels::Program fuse_elementwise(kernels::Program program, const kernels::Catalog& catalog);
// All of them, in the order above, and simplify again.
kernels::Program fuse(kernels::Program program, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
