// Writes the calls that bring a value from one division over the ranks to another.
#pragma once

#include "kernels/program/builder.h"
#include "trainer/mesh/spec.h"

namespace meshloom::trainer {

// `x` is this rank's part, by `from`, of a value of type `whole`. Returns its part by `to`. Sums are added up in the order of
// places. Throws Error for what is not built: moves along other dimensions than the first.
//   partial -> flat    all_to_all and reduce_sum, over fsdp first
//   partial -> whole   the same, then gathered; of few elements, gathered and added up by every rank
//   flat -> whole      all_gather, over fsdp last
//   flat -> finer      a slice;    whole -> flat, whole -> cut    a slice
//   flat -> coarser    all_gather;     cut -> whole    all_gather
//   whole -> partial   times 1 on the first rank, and times 0 on the others
kernels::Tensor convert(kernels::Tensor x, const kernels::TensorType& whole, const Spec& from, const Spec& to,
                        const Topology& mesh);

}  // namespace meshloom::trainer
