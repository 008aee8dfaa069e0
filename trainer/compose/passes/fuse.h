// Fuses calls into fewer, larger ones with the same result. No expensive call is ever computed twice.
//
//   simplify            removes copies, reshapes of reshapes, and results and calls that nobody reads
//   fuse_epilogues      matmul + bias, + residual (also a sum of two products), + activation; embedding_grad and gradients of
//                       norms + residual
//   fuse_elementwise    turns chains of elementwise calls with one reader into one call
//
// Values that a later phase also reads are kept, so an activation is fused into its matmul only when the
// backward pass does not need the activation's input.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// The longest chain that is fused, in nodes of the expression: device compilers have limits.
constexpr std::size_t kMaxFusedNodes = 96;

kernels::Program simplify(kernels::Program program, const kernels::Catalog& catalog);
kernels::Program fuse_epilogues(kernels::Program program, const kernels::Catalog& catalog);
kernels::Program fuse_elementwise(kernels::Program program, const kernels::Catalog& catalog);
// All of them, in the order above, then simplify again.
kernels::Program fuse(kernels::Program program, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
