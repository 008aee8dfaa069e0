// Vectors that move between ranks in fewer bits, with error feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collective/collective.h"
#include "kernels/program/builder.h"

namespace meshloom::trainer {

// Writes the calls that bring f32 vectors into the dtype in which they move, and back: f32 as they are, bf16 rounded, i8 with a scale
// for every kScaleBlock values. A block of i8 with a value that is not finite comes back as NaN.
class Compressor {
 public:
  explicit Compressor(kernels::DType dtype) : dtype_(dtype) {}

  bool is_exact() const { return dtype_ == kernels::DType::f32; }
  // Vectors must be a multiple of so many values long.
  std::int64_t block() const;

  // The tensors that stand for x (n) f32.
  std::vector<kernels::Tensor> compress(kernels::Tensor x) const;
  kernels::Tensor decompress(const std::vector<kernels::Tensor>& tensors) const;
  // Those that stand for x (n) + error (n), with zeros behind them up to `size` values. `error`, an input of the program, is what
  // rounding lost before. It becomes what rounding loses now, and 0 where that is not finite, so that the mean of what moves
  // follows that of x (error feedback: Seide et al., 1-bit stochastic gradient descent, 2014).
  std::vector<kernels::Tensor> compress(kernels::Tensor x, kernels::Tensor error, std::int64_t size) const;

  // Place i of a group gets the i-th piece of what each place sends, `tensors` that stand for `places` pieces of so many values:
  // (places, piece) f32.
  kernels::Tensor all_to_all(std::vector<kernels::Tensor> tensors, const kernels::GroupPlace& group,
                             std::int64_t places, std::int64_t piece) const;

  // Of tensor number `tensor` of those that stand for so many values: its elements, and its shape.
  std::int64_t count(std::size_t tensor, std::int64_t values) const;
  kernels::Shape shape(std::size_t tensor, std::int64_t values) const;

 private:
  kernels::DType dtype_;
};

// x (n) with zeros behind it, up to `size` values.
kernels::Tensor padded(kernels::Tensor x, std::int64_t size);
// The first values of x (n).
kernels::Tensor first_of(kernels::Tensor x, std::int64_t count);

}  // namespace meshloom::trainer
