// The second half of every sum over rows: adds the partial sums that blocks of rows left in the workspace.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/encode.h"

namespace meshloom::backends::cpu {

// Records out(column) = sum over b < blocks of partials(b, column), in order; both are f32. The caller records a
// barrier between the dispatch that writes the partials and this one. The kernel is one of reduce_sum_kernels().
void record_partial_sums(const kernels::EncodeArgs& args, const hal::Binding& partials,
                         const hal::Binding& out, std::int64_t blocks, std::int64_t columns);

}  // namespace meshloom::backends::cpu
