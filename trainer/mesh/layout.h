// Which part of a persistent value a rank of a mesh holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// The part is a range of the elements of a box of the whole tensor, both in row-major order. A box that is all of its
// tensor, and a range that is all of its box, are the usual cases.
struct Layout {
  kernels::TensorType whole;
  std::vector<std::int64_t> begin, extent;  // of the box, one entry a dimension
  Range range;                              // of the box's elements
  bool partial = false;                     // the ranks hold summands of it: only their sum is the value
  bool first = true;  // of the ranks that hold this very part, this is the first: the one that saves it
  // The dimension along which the box is two runs of places, of one length, and where the second begins; -1 = none.
  int two_runs = -1;
  std::int64_t second = 0;

  bool is_whole() const;
  bool operator==(const Layout&) const = default;
};

Layout whole_layout(kernels::TensorType type);

// Calls `visit` for every run of elements that lie one behind another both in the whole tensor, from `whole`, and in the
// part, from `part`; in the order of the part.
void for_runs(const Layout& layout,
              const std::function<void(std::int64_t whole, std::int64_t part, std::int64_t count)>& visit);

}  // namespace meshloom::trainer
