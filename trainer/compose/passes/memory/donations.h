// Makes every donation of a program possible for the memory plan.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// A donated output may be written directly into its input's storage when the output is no view, nothing reads
// the old contents after its call (through any view), and its call itself reads them only in place. Otherwise
// the new value is copied there at the end of the program. Throws Error for dtypes that cannot be copied (all
// but f32).
kernels::Program legalize_donations(kernels::Program program, const kernels::Catalog& catalog);

// Whether output `output` of `call` may be written into the storage `unit`, which holds the values v with
// unit_of[v] == unit: the contract must allow it for every input of the call that lies there.
bool writes_in_place(const kernels::Program& program, const kernels::Call& call, int output,
                     const kernels::Catalog& catalog, const std::vector<kernels::ValueId>& unit_of,
                     kernels::ValueId unit);

}  // namespace meshloom::trainer
