// Mixed precision: activations and the operands of matmuls in 16 bits, sums and state in f32.
#pragma once

#include "kernels/core/catalog.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// Rewrites a traced f32 program so that it computes in `dtype` where the contracts allow it
// (kernels::LowPrecision). Parameters stay f32; a parameter that a matmul reads is cast once. Ops that begin with
// parameters (embedding, products with weights) become low-precision, and so do all ops that read a
// low-precision value; by contract, statistics, losses and their sums are f32. Values that leave the program
// keep their types. Gradients follow by differentiation: those of activations are in `dtype`, those of
// parameters in f32. Does nothing for f32.
void compute_in(kernels::DType dtype, layers::Traced& traced, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
