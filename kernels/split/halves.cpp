#include "kernels/split/halves.h"

#include <vector>

#include "kernels/layout/layout.h"
#include "kernels/split/split.h"

namespace meshloom::kernels {

std::pair<std::int64_t, std::int64_t> around(const Shape& shape, std::size_t d) {
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) (i < d ? outer : inner) *= shape[i];
  return {outer, inner};
}

std::pair<Tensor, Tensor> halves(Tensor x, std::size_t d) {
  Shape half = x.shape();
  half[d] /= 2;
  const auto [outer, inner] = around(half, d);
  const Tensor rows = outer == 1
                          ? reshape(x, {2, inner})
                          : reshape(permute(reshape(x, {outer, 2, inner}), {1, 0, 2}), {2, outer * inner});
  const std::vector<Tensor> parts = split(rows, 1);
  return {reshape(parts.at(0), half), reshape(parts.at(1), half)};
}

Tensor join_halves(Tensor first, Tensor second, std::size_t d) {
  Shape whole = first.shape();
  const auto [outer, inner] = around(whole, d);
  whole[d] *= 2;
  Tensor rows = concat_rows({reshape(first, {1, outer * inner}), reshape(second, {1, outer * inner})});
  if (outer > 1) rows = permute(reshape(rows, {2, outer, inner}), {1, 0, 2});
  return reshape(rows, whole);
}

}  // namespace meshloom::kernels
