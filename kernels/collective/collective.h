// The ops that move values between the ranks of a job. None computes: each is a list of moves (moves.h), which the
// executor carries out, and counters, references and planners walk.
//
// The ranks that take part are a group, each at a place of it. What all of them share is said on every rank:
//   axes   the mesh axes in which the group's ranks differ, "data,fsdp"; it is a name here, and the executor knows the ranks
//   place  this rank's place in the group
//   root   of gather_to and scatter_from: the place that has the whole
//   runs   elements, see below, as collective::Sizes::pairs()
//   order  "zigzag" where parts stand in that order (moves.h): those of the output of all_gather, or of the input of an
//          all_to_all in which every place sends alike; else left out
// A group of one place copies, which is what the reference does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/collective/moves.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct GroupPlace {
  std::string axes;
  std::int64_t place = 0;
};

// The inputs of all places behind one another, as a tensor of this shape. Place i gives sizes[i] elements: its whole input,
// or nothing where sizes[i] is 0.
Tensor all_gather(Tensor x, const GroupPlace& group, const collective::Sizes& sizes, Shape shape,
                  collective::Order order = collective::Order::contiguous);
// sizes[i * places + j] elements go from place i to place j. The input is what this place sends to 0, 1, ...; the output, of
// this shape, is what it gets from 0, 1, ...
Tensor all_to_all(Tensor x, const GroupPlace& group, const std::vector<std::int64_t>& sizes, Shape shape);
// The all_to_all in which every place sends sizes[j] elements to place j.
Tensor all_to_all_alike(Tensor x, const GroupPlace& group, const collective::Sizes& sizes, Shape shape,
                        collective::Order order = collective::Order::contiguous);
// On the place `root`, the inputs of all places behind one another, as a tensor of this shape: place i gives sizes[i] elements.
// The others get nothing: their output is a placeholder, one element that nobody writes and nobody may read.
// A second input, `after`, is not read either: it is the placeholder of another such call, which then lives as long as this one.
Tensor gather_to(Tensor x, const GroupPlace& group, const collective::Sizes& sizes, std::int64_t root,
                 Shape shape);
// Place i gets the i-th of the parts of the input of the place `root`, which has sizes[i] elements, as a tensor of this shape. The
// others send nothing: their input is not read, and may have any shape.
Tensor scatter_from(Tensor x, const GroupPlace& group, const collective::Sizes& sizes, std::int64_t root,
                    Shape shape);
// The input of place i becomes the output of place (i + by) mod places. All inputs have one type.
Tensor shift(Tensor x, const GroupPlace& group, std::int64_t places, std::int64_t by);

}  // namespace meshloom::kernels
