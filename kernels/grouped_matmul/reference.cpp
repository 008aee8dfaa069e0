#include <Eigen/Core>

#include "kernels/grouped_matmul/parts.h"

namespace meshloom::kernels::grouped_matmul_parts {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix<double> matrix(const float* data, std::int64_t rows, std::int64_t columns) {
  return Eigen::Map<const Matrix<float>>(data, rows, columns).cast<double>();
}
void store(const Matrix<double>& from, float* into) {
  Eigen::Map<Matrix<float>>(into, from.rows(), from.cols()) = from.cast<float>();
}

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const GroupedMatmulDims d = grouped_matmul_dims(call);
  const auto* offsets = inputs[2].as<std::int32_t>();
  store(Matrix<double>::Zero(d.rows, d.n), outputs[0].as<float>());
  for (std::int64_t e = 0; e < d.groups; ++e) {
    const std::int64_t first = offsets[e], count = offsets[e + 1] - first;
    Matrix<double> w =
        matrix(inputs[1].as<float>() + e * d.n * d.k, d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n);
    if (d.trans_b) w = w.transpose().eval();
    Matrix<double> y = matrix(inputs[0].as<float>() + first * d.k, count, d.k) * w;
    if (d.bias) y.rowwise() += matrix(inputs[3].as<float>() + e * d.n, 1, d.n).row(0);
    store(y, outputs[0].as<float>() + first * d.n);
  }
}

void reference_outer(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  const std::int64_t m = call.inputs[0].dim(1), n = call.inputs[1].dim(1);
  const auto* offsets = inputs[2].as<std::int32_t>();
  for (std::int64_t e = 0; e < call.outputs[0].dim(0); ++e) {
    const std::int64_t first = offsets[e], count = offsets[e + 1] - first;
    store(matrix(inputs[0].as<float>() + first * m, count, m).transpose() *
              matrix(inputs[1].as<float>() + first * n, count, n),
          outputs[0].as<float>() + e * m * n);
  }
}

void reference_sum(const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(1);
  const auto* offsets = inputs[1].as<std::int32_t>();
  for (std::int64_t e = 0; e < call.outputs[0].dim(0); ++e)
    store(matrix(inputs[0].as<float>() + offsets[e] * n, offsets[e + 1] - offsets[e], n).colwise().sum(),
          outputs[0].as<float>() + e * n);
}

}  // namespace meshloom::kernels::grouped_matmul_parts
