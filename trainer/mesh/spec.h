// How a value of a program is divided over the ranks of a mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/mesh/layout.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Parts along dimensions, of a range of whose elements a rank may hold a part ("flat"), or a summand. A range and a summand
// exclude each other. A value may also be one that every shard made of its own rows: it is no part of the value of one rank, and
// is never moved.
struct Spec {
  std::vector<AxisSet> dims;  // the axes that cut each dimension, as dim_range() says
  AxisSet partial;            // every rank along these holds a summand of the value
  AxisSet
      flat;  // a range of the elements of the part along dimensions, in row-major order; the rank's part is a vector then
  AxisSet own;  // ranks that differ along these have values of their own
  // The dimension that the axis seq cuts is so many blocks behind one another, each of which it cuts by itself: the sequences of
  // rows x tokens. Axes in front of seq divide blocks, those behind it the rank's places of all its blocks together. 1 where seq
  // cuts nothing. In zigzag (SequenceOrder) a rank has two runs of every block.
  std::int64_t blocks = 1;
  // One rank alone has the value, and has it whole: that of this place over axes_of_values(). The others have nothing. -1 = none.
  int owner = -1;
  bool operator==(const Spec&) const = default;
  bool operator<(const Spec& other) const;
  AxisSet cuts() const;  // all axes that cut dimensions
  // The same division along dimensions, without ranges and summands.
  Spec along_dims() const { return {dims, {}, {}, {}, cuts().has(AxisName::seq) ? blocks : 1}; }
};

Spec whole_spec(int rank);
Spec owned_spec(int rank, int owner);
Spec partial_spec(int rank, AxisSet axes);

// The axes over which values are divided: all but pipeline and islands.
AxisSet axes_of_values(const Topology& mesh);

// What a rank holds of n places of a dimension that these axes cut, the outermost first. Parts are as equal as whole places can
// be, those over axes of rows in proportion to the shares of the mesh, if it has any. Of a dimension in blocks (Spec::blocks), or
// cut in zigzag, the count holds, and the first place has no meaning.
Range dim_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank);
// Where the two runs of a rank begin that axes in zigzag, of which seq is the last, leave it of n places, which 2n runs divide.
struct TwoRuns {
  std::int64_t first = 0, second = 0, length = 0;
};
TwoRuns two_runs(std::int64_t n, AxisSet axes, const Topology& mesh, int rank);
// Whether the parts of n places are whole multiples of those of any other number of places that these axes divide.
bool divides(std::int64_t n, AxisSet axes, const Topology& mesh);

// The range of n elements that a rank holds when they are divided over these axes: over fsdp first, then over the others, and
// then over islands, so that a range lies in that over fewer of these. Some are empty when there are fewer elements than ranks.
Range flat_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank);

// Elements that share a scale where they move in int8.
constexpr std::int64_t kScaleBlock = 256;
// Of n elements, those of an island: so many a piece, in whole blocks, the last piece with what is left. 0 = pieces would be
// empty, and n elements are not divided over islands.
std::int64_t island_piece(std::int64_t n, const Topology& mesh);

// The shape of a rank's part along dimensions.
kernels::Shape box_shape(const kernels::Shape& whole, const Spec& spec, const Topology& mesh, int rank);
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

// "[data,fsdp]..", ".[model] flat over fsdp", ".. partial over data"
std::string to_string(const Spec& spec);

}  // namespace meshloom::trainer
