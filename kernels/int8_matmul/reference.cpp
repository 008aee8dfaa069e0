#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/int8_matmul/parts.h"

namespace meshloom::kernels {

float inverse_scale(float largest) {
  const auto bits = std::bit_cast<std::uint32_t>(largest);
  const std::uint32_t exponent = bits >> 23 & 255u, fraction = (bits & 0x7fffffu) | 0x800000u;
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  if (exponent < 9) return 0;
  const std::uint32_t n = (127u << 24) / fraction;  // 127 to 254
  return static_cast<float>(n) * 0x1p-7f * std::bit_cast<float>((260 - exponent) << 23);
}

namespace int8_matmul_parts {

void reference_quantize(const CallView& call, std::span<const ConstTensorView> inputs,
                        std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = inputs[0].as<float>() + r * columns;
    auto* q = outputs[0].as<std::int8_t>() + r * columns;
    float largest = 0;
    for (std::int64_t c = 0; c < columns; ++c)
      largest = std::isnan(x[c]) || std::isnan(largest) ? std::numeric_limits<float>::quiet_NaN()
                                                        : std::max(largest, std::abs(x[c]));
    const float inverse = inverse_scale(largest);
    outputs[1].as<float>()[r] = inverse == 0 ? 1 : 1 / inverse;
    for (std::int64_t c = 0; c < columns; ++c)
      q[c] = std::isnan(inverse) ? std::int8_t{0} : static_cast<std::int8_t>(std::nearbyint(x[c] * inverse));
  }
}

void reference_dequantize(const CallView& call, std::span<const ConstTensorView> inputs,
                          std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = r * columns; c < (r + 1) * columns; ++c)
      outputs[0].as<float>()[c] =
          static_cast<float>(static_cast<double>(inputs[0].as<std::int8_t>()[c]) * inputs[1].as<float>()[r]);
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const Int8MatmulDims d = int8_matmul_dims(call);
  for (std::int64_t m = 0; m < d.m; ++m)
    for (std::int64_t n = 0; n < d.n; ++n) {
      const auto *a = inputs[0].as<std::int8_t>() + m * d.k, *b = inputs[2].as<std::int8_t>() + n * d.k;
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < d.k; ++k) sum += static_cast<std::int64_t>(a[k]) * b[k];
      double value = static_cast<double>(sum) * inputs[1].as<float>()[m] * inputs[3].as<float>()[n];
      if (d.bias >= 0) value += inputs[static_cast<std::size_t>(d.bias)].as<float>()[n];
      outputs[0].as<float>()[m * d.n + n] = static_cast<float>(value);
    }
}

}  // namespace int8_matmul_parts
}  // namespace meshloom::kernels
