// Makes every donation one that the memory plan can honour.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// A donated output may be written straight into its input's storage when it has storage of its own, nothing
// reads the old contents after its call (in any shape), and its call reads them only in place. Where that
// does not hold, the new value is copied over at the end of the program. Throws Error for dtypes that cannot
// be copied (all but f32).
kernels::Program legalize_donations(kernels::Program program, const kernels::Catalog& catalog);

// Whether output `output` of `call` may lie in the storage of `unit`, whose values are those v with
// unit_of[v] == unit: every input there is paired with it by the contract.
bool writes_in_place(const kernels::Program& program, const kernels::Call& call, int output,
                     const kernels::Catalog& catalog, const std::vector<kernels::ValueId>& unit_of,
                     kernels::ValueId unit);

}  // namespace meshloom::trainer
