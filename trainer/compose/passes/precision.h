// Mixed precision: activations and what weights are multiplied as in 16 bits, sums and state in f32.
#pragma once

#include "kernels/core/catalog.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// Rewrites a traced program of f32 so that it computes on `dtype`, as the contracts allow (kernels::LowPrecision). Parameters
// stay f32; one that a matmul reads is cast once. Narrow become the ops that begin with parameters (embedding, products
// with weights) and whatever reads a narrow value; statistics, losses and their sums come out in f32 by contract.
// Everything that leaves the program has the type it had. Gradients follow by differentiation: of activations in
// `dtype`, of parameters in f32. Does nothing for f32.
void compute_in(kernels::DType dtype, layers::Traced& traced, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
