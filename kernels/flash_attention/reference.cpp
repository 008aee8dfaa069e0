// Attention head by head with the whole matrix of probabilities, in double.
#include <Eigen/Core>
#include <cmath>

#include "kernels/flash_attention/parts.h"

namespace meshloom::kernels::flash_attention_parts {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Floats, 0, Eigen::OuterStride<>>;
using ConstRows = Eigen::Map<const Floats, 0, Eigen::OuterStride<>>;

// One head of one batch row of a (B, length, heads, D) tensor, as a (length, D) matrix.
ConstRows head(const ConstTensorView& x, std::int64_t b, std::int64_t h) {
  const std::int64_t length = x.type.dim(1), heads = x.type.dim(2), d = x.type.dim(3);
  return {x.as<float>() + (b * length * heads + h) * d, length, d, Eigen::OuterStride<>(heads * d)};
}
Rows head(const TensorView& x, std::int64_t b, std::int64_t h) {
  const std::int64_t length = x.type.dim(1), heads = x.type.dim(2), d = x.type.dim(3);
  return {x.as<float>() + (b * length * heads + h) * d, length, d, Eigen::OuterStride<>(heads * d)};
}

std::int64_t visible(const AttentionDims& d, std::int64_t query) {
  return d.causal ? query + d.t - d.s + 1 : d.t;
}

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  for (std::int64_t b = 0; b < d.b; ++b)
    for (std::int64_t h = 0; h < d.h; ++h) {
      const std::int64_t kv = h / (d.h / d.kv);
      const Matrix q = head(inputs[0], b, h).cast<double>(), k = head(inputs[1], b, kv).cast<double>(),
                   v = head(inputs[2], b, kv).cast<double>();
      Matrix p = d.scale * (q * k.transpose());
      for (std::int64_t i = 0; i < d.s; ++i) {
        const std::int64_t count = visible(d, i);
        const double largest = p.row(i).head(count).maxCoeff();
        double sum = 0;
        for (std::int64_t j = 0; j < count; ++j) sum += p(i, j) = std::exp(p(i, j) - largest);
        p.row(i).head(count) /= sum;
        p.row(i).tail(d.t - count).setZero();
        outputs[1].as<float>()[(b * d.h + h) * d.s + i] = static_cast<float>(largest + std::log(sum));
      }
      const Matrix o = p * v;
      head(outputs[0], b, h) = o.cast<float>();
    }
}

// With P = exp(scale q k^T - lse), D = rowsum(o do): dv = P^T do, dS = P (do v^T - D), dq = scale dS k,
// dk = scale dS^T q.
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const std::int64_t group = d.h / d.kv;
  for (std::int64_t b = 0; b < d.b; ++b)
    for (std::int64_t kv = 0; kv < d.kv; ++kv) {
      const Matrix k = head(inputs[1], b, kv).cast<double>(), v = head(inputs[2], b, kv).cast<double>();
      Matrix dk = Matrix::Zero(d.t, d.d), dv = Matrix::Zero(d.t, d.d);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const Matrix q = head(inputs[0], b, h).cast<double>(), o = head(inputs[3], b, h).cast<double>(),
                     dout = head(inputs[5], b, h).cast<double>();
        Matrix p = d.scale * (q * k.transpose());
        for (std::int64_t i = 0; i < d.s; ++i) {
          const double lse = inputs[4].as<float>()[(b * d.h + h) * d.s + i];
          const std::int64_t count = visible(d, i);
          for (std::int64_t j = 0; j < count; ++j) p(i, j) = std::exp(p(i, j) - lse);
          p.row(i).tail(d.t - count).setZero();
        }
        dv += p.transpose() * dout;
        Matrix ds = dout * v.transpose();
        for (std::int64_t i = 0; i < d.s; ++i) {
          const double delta = o.row(i).dot(dout.row(i));
          ds.row(i) = p.row(i).cwiseProduct(ds.row(i) - Eigen::RowVectorXd::Constant(d.t, delta));
        }
        const Matrix dq = d.scale * (ds * k);
        head(outputs[0], b, h) = dq.cast<float>();
        dk += d.scale * (ds.transpose() * q);
      }
      head(outputs[1], b, kv) = dk.cast<float>();
      head(outputs[2], b, kv) = dv.cast<float>();
    }
}

}  // namespace meshloom::kernels::flash_attention_parts
