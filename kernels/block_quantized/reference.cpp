#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/block_quantized/parts.h"
#include "kernels/int8_matmul/int8_matmul.h"

namespace meshloom::kernels::block_quantized_parts {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// What a block of x is after it is rounded to 8 bits.
void round_block(const float* x, double* into) {
  float largest = 0;
  for (std::int64_t i = 0; i < kActivationBlock; ++i)
    largest = std::isnan(x[i]) || std::isnan(largest) ? std::numeric_limits<float>::quiet_NaN()
                                                      : std::max(largest, std::abs(x[i]));
  const float inverse = inverse_scale(largest);
  const float scale = inverse == 0 ? 1 : 1 / inverse;  // NaN of what is not finite
  for (std::int64_t i = 0; i < kActivationBlock; ++i)
    into[i] = static_cast<double>(std::isnan(inverse) ? 0 : std::nearbyint(x[i] * inverse)) * scale;
}

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const BlockQuantizedDims d = block_quantized_dims(call);
  Floats values(d.n, d.k);
  block_quantized::dequantize(*d.format, inputs[1].as<std::uint8_t>(), d.n * d.k, values.data());
  const float* from = inputs[0].as<float>();
  Matrix x = Eigen::Map<const Floats>(from, d.m, d.k).cast<double>();
  if (d.int8)
    for (std::int64_t at = 0; at < d.m * d.k; at += kActivationBlock) round_block(from + at, x.data() + at);
  Matrix y = x * values.cast<double>().transpose();
  if (d.bias >= 0)
    y.rowwise() += Eigen::Map<const Floats>(inputs[static_cast<std::size_t>(d.bias)].as<float>(), 1, d.n)
                       .cast<double>()
                       .row(0);
  if (d.residual >= 0)
    y += Eigen::Map<const Floats>(inputs[static_cast<std::size_t>(d.residual)].as<float>(), d.m, d.n)
             .cast<double>();
  Eigen::Map<Floats>(outputs[0].as<float>(), d.m, d.n) = y.cast<float>();
}

}  // namespace meshloom::kernels::block_quantized_parts
