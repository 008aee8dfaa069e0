#include "trainer/compose/passes/distributed/compression.h"

#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/int8_matmul/int8_matmul.h"
#include "kernels/layout/layout.h"
#include "trainer/compose/passes/distributed/convert_spec.h"
#include "trainer/compose/passes/update.h"

namespace meshloom::trainer {

using kernels::DType;
using kernels::Tensor;
using kernels::collective::Sizes;

std::int64_t Compressor::block() const { return dtype_ == DType::i8 ? kScaleBlock : 1; }

std::vector<Tensor> Compressor::compress(Tensor x) const {
  if (dtype_ == DType::f32) return {x};
  if (dtype_ == DType::bf16) return {kernels::cast(x, DType::bf16)};
  const kernels::QuantizedRows rows =
      kernels::quantize_rows(kernels::reshape(x, {x.dim(0) / kScaleBlock, kScaleBlock}));
  return {rows.values, rows.scales};
}

Tensor Compressor::decompress(const std::vector<Tensor>& tensors) const {
  const Tensor x = dtype_ == DType::i8 ? kernels::dequantize_rows({tensors[0], tensors[1]})
                                       : kernels::cast(tensors[0], DType::f32);
  return reshaped(x, {x.type().elements()});
}

std::vector<Tensor> Compressor::compress(Tensor x, Tensor error, std::int64_t size) const {
  const auto [a, b] = kernels::inputs<2>();
  const Tensor wanted = kernels::elementwise({x, error}, a + b);
  std::vector<Tensor> tensors = compress(padded(wanted, size));
  const kernels::Expr lost = a - b;
  carry(*x.builder, error,
        kernels::elementwise({wanted, first_of(decompress(tensors), x.dim(0))},
                             select(is_finite(lost), lost, 0)));
  return tensors;
}

Tensor Compressor::all_to_all(std::vector<Tensor> tensors, const kernels::GroupPlace& group,
                              std::int64_t places, std::int64_t piece) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i] = kernels::all_to_all_alike(tensors[i], group, Sizes::equal(places, count(i, piece)),
                                           shape(i, places * piece));
  return kernels::reshape(decompress(tensors), {places, piece});
}

std::int64_t Compressor::count(std::size_t tensor, std::int64_t values) const {
  return tensor == 0 ? values : values / kScaleBlock;
}

kernels::Shape Compressor::shape(std::size_t tensor, std::int64_t values) const {
  if (dtype_ == DType::i8 && tensor == 0) return {values / kScaleBlock, kScaleBlock};
  return {count(tensor, values)};
}

Tensor padded(Tensor x, std::int64_t size) {
  const std::int64_t n = x.dim(0);
  return n == size ? x : pad_dim(x, 0, {0, n}, size);
}

Tensor first_of(Tensor x, std::int64_t count) { return slice_dim(x, 0, {0, count}); }

}  // namespace meshloom::trainer
