// Writes the calls that bring a value from one division over the ranks to another.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/collective/moves.h"
#include "kernels/program/builder.h"
#include "trainer/mesh/spec.h"

namespace meshloom::trainer {

// `x` is this rank's part, by `from`, of a value of type `whole`. Returns its part by `to`. Sums are added up in the order of
// places.
//   partial -> flat             all_to_all and reduce_sum, over fsdp first
//   partial -> cut              all_to_all and reduce_sum along the dimension
//   partial -> whole            to ranges, then gathered; of few elements, gathered and added up by every rank
//   whole -> partial            times 1 on the first rank, and times 0 on the others
//   flat -> coarser, whole      all_gather, over fsdp last
//   flat -> finer, whole -> flat, whole -> cut, cut -> finer    a slice
//   cut -> coarser, whole       all_gather along the dimension
//   flat -> owned               gather_to the owner; on the other ranks the result is one element that nobody may read
//   owned -> flat               scatter_from the owner
//   owned -> whole              all_gather, to which the owner alone gives something
// Where seq cuts every block of a dimension, or in zigzag, it is gathered or cut by itself.
// A dimension that is cut otherwise is gathered up to the axes that both divisions begin with, and cut again.
// `scatter_sum` adds up ranges over some axes in another way, such as in fewer bits: place i gets the i-th of the parts of x that
// these sizes say; `largest` is the largest part of all ranks. Where it gives no tensor, the sum is made as all are.
using ScatterSum = std::function<kernels::Tensor(
    kernels::Tensor x, AxisSet over, const kernels::collective::Sizes& parts, std::int64_t largest)>;
kernels::Tensor convert(kernels::Tensor x, const kernels::TensorType& whole, const Spec& from, const Spec& to,
                        const Topology& mesh, const ScatterSum& scatter_sum = {});

// Whether ranges of such a value over all axes (axes_of_values) stand in the order of places, or can be brought into it: what a rank
// is to gather whole, or to scatter.
bool can_gather_to_owner(const kernels::TensorType& whole, const Topology& mesh);

// What the first rank of each group over these axes has. Over many ranks it goes along one axis after another, so that no rank sends
// to all.
kernels::Tensor broadcast(kernels::Tensor x, AxisSet axes, const Topology& mesh);

// x in this shape; x itself where it has it.
kernels::Tensor reshaped(kernels::Tensor x, const kernels::Shape& shape);
// Places `range` of dimension `d` of x.
kernels::Tensor slice_dim(kernels::Tensor x, std::size_t d, Range range);
// x as places `range` of dimension `d` of a tensor that has `size` of them, and zeros elsewhere.
kernels::Tensor pad_dim(kernels::Tensor x, std::size_t d, Range range, std::int64_t size);

}  // namespace meshloom::trainer
