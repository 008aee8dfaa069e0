// Elements set to zero at random, the others made larger by as much (Srivastava et al., 2014).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "dropout": inputs x, a float dtype, and draw (3) i32: seed, step, first row; output like x, may share
// its storage. attrs: rate (number in [0, 1)), key (integer, not negative), rows, share (integers).
//   x is `rows` rows of the batch, the first of which is row `first row` of the step's whole batch; `share`
//   elements in turn have one draw, and a row holds a whole number of those. Draw u of the step's whole batch
//   is word u mod 4 of philox(counter = {u / 4 (64 bits), step, seed}, key). Where the word is below rate
//   2^32, rounded down, y = 0, else y = x / (1 - rate).
// Where x is a part of a tensor, whole (a shape) and at (where the part begins, by dimension) say so: the draws are those that the
// part has in the whole, which rows and share are of too. Only the first and the last dimension may be parts.
// So what is dropped depends on neither device nor order, nor on how a batch is cut into micro-batches. The
// gradient is the same op on the cotangent: nothing is kept for it.
struct DropoutOptions {
  double rate = 0;
  std::uint64_t key = 0;  // its highest bit is left out
  std::int64_t rows = 1;
  std::int64_t share = 1;
};
Tensor dropout(Tensor x, Tensor rng_state, const DropoutOptions& options);

// What a call's attributes come to, decoded once for every variant.
struct DropoutDims {
  std::int64_t count = 0;             // elements
  std::int64_t share = 1;             // elements of one draw
  std::int64_t row_words = 1;         // draws of a row
  std::int64_t before = 0, rest = 0;  // draws in front of x, and elements of the one in which x begins
  std::int64_t run = 0, stride = 0;   // so many elements lie together in the whole, and begin so far apart

  // The place of an element in the whole, from the beginning of the draw in which x begins.
  std::int64_t place(std::int64_t i) const { return rest + i / run * stride + i % run; }
  std::uint32_t k0 = 0, k1 = 0;  // the key
  std::uint32_t threshold = 0;   // a word below it drops
  float scale = 1;               // of what stays
};
DropoutDims dropout_dims(const CallView& call);

}  // namespace meshloom::kernels
