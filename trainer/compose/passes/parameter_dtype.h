// Parameters that are stored in bf16, without a copy in f32. What is computed with them is computed in the dtype of the program,
// their updates in f32, and those are rounded stochastically, so that steps smaller than a rounding are not lost (Zamirai et al.,
// Revisiting bfloat16 training, 2020; torchao's bf16_stochastic_round).
#pragma once

#include <set>
#include <string>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// Makes the inputs of these names, f32 parameters, bf16. Casts to bf16 fall away; every other call that reads one outside of the
// update gets an f32 copy of its own, which lives during that call. In the update a parameter is widened once, and what it becomes
// is rounded by stochastic_round with the input "rng_state" (3) i32 and a key of the parameter's path. The pass comes after the
// update was written, and needs donations to have calls that define their outputs.
kernels::Program parameters_in_bf16(kernels::Program program, const kernels::Catalog& catalog,
                                    const std::set<std::string>& names);

}  // namespace meshloom::trainer
