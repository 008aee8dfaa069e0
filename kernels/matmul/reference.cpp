#include <Eigen/Core>
#include <cmath>
#include <numbers>

#include "kernels/matmul/parts.h"

namespace meshloom::kernels::matmul_parts {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const MatmulDims d = matmul_dims(call);
  for (std::int64_t g = 0; g < d.g; ++g) {
    const Eigen::Map<const Matrix<float>> a(inputs[0].as<float>() + g * d.m * d.k, d.trans_a ? d.k : d.m,
                                            d.trans_a ? d.m : d.k);
    const Eigen::Map<const Matrix<float>> b(inputs[1].as<float>() + g * d.k * d.n, d.trans_b ? d.n : d.k,
                                            d.trans_b ? d.k : d.n);
    Matrix<double> left = a.cast<double>(), right = b.cast<double>();
    if (d.trans_a) left = left.transpose().eval();
    if (d.trans_b) right = right.transpose().eval();
    const Matrix<double> product = left * right;

    float* c = outputs[0].as<float>() + g * d.m * d.n;
    for (std::int64_t m = 0; m < d.m; ++m)
      for (std::int64_t n = 0; n < d.n; ++n) {
        double value = product(m, n);
        if (d.bias >= 0) value += inputs[static_cast<std::size_t>(d.bias)].as<float>()[n];
        value = activate(d.activation, value);
        if (d.residual >= 0)
          value += inputs[static_cast<std::size_t>(d.residual)].as<float>()[(g * d.m + m) * d.n + n];
        c[m * d.n + n] = static_cast<float>(value);
      }
  }
}

}  // namespace meshloom::kernels::matmul_parts
