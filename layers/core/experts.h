// How a layer keeps several copies of what stands below it, each for some of the rows: what MoE says to its experts.
#pragma once

#include <cstdint>

#include "kernels/program/builder.h"

namespace meshloom::layers {

// Provided to descendants: every parameter they declare gets a leading dimension of `count`, a copy for each expert.
struct Experts {
  std::int64_t count;
};

// In the call: rows lie sorted by expert, those of expert e are [offsets[e], offsets[e + 1]) (see
// kernels/grouped_matmul). A layer that multiplies by a parameter takes each row's own copy.
struct ExpertRows {
  kernels::Tensor offsets;  // (count + 1) i32
};

}  // namespace meshloom::layers
