#include <Eigen/Core>
#include <algorithm>
#include <vector>

#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"

namespace meshloom::kernels::nf4_matmul_parts {

std::vector<float> scales_of(const ConstTensorView& scales, const float* steps, std::int64_t rows,
                             std::int64_t per_row) {
  std::vector<float> values(static_cast<std::size_t>(rows * per_row));
  if (steps == nullptr)
    std::copy_n(scales.as<float>(), values.size(), values.begin());
  else
    nf4::unpack_scales(scales.as<std::uint8_t>(), steps, rows, per_row, values.data());
  return values;
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  std::vector<float> values(static_cast<std::size_t>(d.rows * d.columns));
  const std::vector<float> scales =
      scales_of(inputs[2], d.steps < 0 ? nullptr : inputs[3].as<float>(), d.rows, call.inputs[2].dim(1));
  nf4::unpack(inputs[1].as<std::uint8_t>(), scales.data(), d.rows, d.columns, d.block, values.data());
  Matrix w = Eigen::Map<const Floats>(values.data(), d.rows, d.columns).cast<double>();
  if (d.trans_b) w.transposeInPlace();
  Matrix y = Eigen::Map<const Floats>(inputs[0].as<float>(), d.m, d.k).cast<double>() * w;
  if (d.bias >= 0)
    y.rowwise() += Eigen::Map<const Floats>(inputs[static_cast<std::size_t>(d.bias)].as<float>(), 1, d.n)
                       .cast<double>()
                       .row(0);
  if (d.residual >= 0)
    y += Eigen::Map<const Floats>(inputs[static_cast<std::size_t>(d.residual)].as<float>(), d.m, d.n)
             .cast<double>();
  Eigen::Map<Floats>(outputs[0].as<float>(), d.m, d.n) = y.cast<float>();
}

}  // namespace meshloom::kernels::nf4_matmul_parts
