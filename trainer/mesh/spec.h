// How a value of a program is divided over the ranks of a mesh.
#pragma once

#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/mesh/layout.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// One of: whole; cut along dimensions; a range of the elements ("flat"). Parts along dimensions are equal.
struct Spec {
  std::vector<AxisSet> dims;  // the axes that cut each dimension
  AxisSet partial;            // every rank along these holds a summand of the value
  AxisSet flat;  // a range of the elements of the whole, in row-major order; no dimension is cut then
  bool operator==(const Spec&) const = default;
  bool operator<(const Spec& other) const;
  bool cut() const;  // along some dimension
};

Spec whole_spec(int rank);
Spec flat_spec(int rank, AxisSet axes);
Spec partial_spec(int rank, AxisSet axes);

// The range of n elements that a rank holds when they are divided over these axes: over fsdp first, then over the others, so
// that the range over all of them lies in that over fsdp. Some are empty when there are fewer elements than ranks.
Range flat_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank);

// The type of this rank's part.
kernels::TensorType local_type(const kernels::TensorType& whole, const Spec& spec, const Topology& mesh);

// A value that is divided, or lives on some stages of a pipeline only.
struct Division {
  kernels::TensorType whole;
  Spec spec;
  std::vector<int> stages = {};  // those that hold it, the first of which saves it; empty = all
};
// The part of a rank. One on another stage has no element.
Layout layout_of(const Division& value, const Topology& mesh, int rank);

std::string to_string(const Spec& spec);  // "[data,fsdp]..", "flat over fsdp", "partial over data"

}  // namespace meshloom::trainer
