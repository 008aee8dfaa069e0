// The second half of every sum over rows: blocks of rows have left their partial sums in the workspace.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/encode.h"

namespace meshloom::backends::cpu {

// Records out(column) = sum over b of partials(b, column), in order, b < blocks; both f32. A barrier must
// stand between it and the dispatch that writes the partials. The kernel is one of reduce_sum_kernels().
void record_partial_sums(const kernels::EncodeArgs& args, const hal::Binding& partials,
                         const hal::Binding& out, std::int64_t blocks, std::int64_t columns);

// `binding` without its first `offset` bytes, cut to `bytes`.
inline hal::Binding part_of(hal::Binding binding, std::int64_t offset, std::int64_t bytes) {
  binding.offset += offset;
  binding.bytes = bytes;
  return binding;
}

}  // namespace meshloom::backends::cpu
