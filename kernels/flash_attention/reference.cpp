// Attention head by head with the whole matrix of probabilities, in double.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/flash_attention/dropout.h"
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

// What the optional inputs of a call say, batch row by batch row.
class Modifiers {
 public:
  Modifiers(const AttentionDims& d, std::span<const ConstTensorView> inputs) : d_(d) {
    const auto at = [&](int input) { return input < 0 ? nullptr : &inputs[static_cast<std::size_t>(input)]; };
    const auto integers = [&](int input) { return at(input) ? at(input)->as<std::int32_t>() : nullptr; };
    tensors_ = {integers(d.q_segments), integers(d.k_segments), integers(d.prefix), integers(d.starts)};
    if (at(d.sink)) sink_ = at(d.sink)->as<float>();
    if (at(d.slopes)) slopes_ = at(d.slopes)->as<float>();
    if (at(d.draw)) draw_ = attention_draw(d, at(d.draw)->as<std::int32_t>());
  }

  AttentionMask mask(std::int64_t b) const { return d_.mask().of_row(tensors_, b); }
  const float* sink() const { return sink_; }
  // scale q.k -> the logit of query i and key j
  double logit(const AttentionMask& mask, std::int64_t h, std::int64_t i, std::int64_t j, double x) const {
    if (d_.soft_cap > 0) x = d_.soft_cap * std::tanh(x / d_.soft_cap);
    if (slopes_) x -= slopes_[h] * static_cast<double>(std::abs(i + mask.offset - j));
    return x;
  }
  // What the probability of the pair is multiplied by.
  double kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (d_.draw < 0) return 1;
    return draw_.factor(b, h, i, j) == 0 ? 0 : d_.kept();
  }
  // Its derivative.
  double steepness(double x) const {
    if (d_.soft_cap <= 0) return 1;
    const double y = std::tanh(x / d_.soft_cap);
    return 1 - y * y;
  }

 private:
  const AttentionDims& d_;
  MaskTensors tensors_;
  const float *sink_ = nullptr, *slopes_ = nullptr;
  AttentionDraw draw_{};
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const Modifiers modifiers(d, inputs);
  for (std::int64_t b = 0; b < d.b; ++b) {
    const AttentionMask mask = modifiers.mask(b);
    for (std::int64_t h = 0; h < d.h; ++h) {
      const std::int64_t kv = h / (d.h / d.kv);
      const Matrix q = head(inputs[0], b, h).cast<double>(), k = head(inputs[1], b, kv).cast<double>(),
                   v = head(inputs[2], b, kv).cast<double>();
      Matrix p = d.scale * (q * k.transpose());
      for (std::int64_t i = 0; i < d.s; ++i) {
        const double sink = modifiers.sink() ? modifiers.sink()[h] : -kInfinity;
        double largest = sink, sum = 0;
        for (std::int64_t j = 0; j < d.t; ++j) {
          p(i, j) = mask.visible(i, j) ? modifiers.logit(mask, h, i, j, p(i, j)) : -kInfinity;
          largest = std::max(largest, p(i, j));
        }
        if (largest > -kInfinity) {
          sum = std::exp(sink - largest);
          for (std::int64_t j = 0; j < d.t; ++j) sum += p(i, j) = std::exp(p(i, j) - largest);
          p.row(i) /= sum;
        } else {
          p.row(i).setZero();
        }
        for (std::int64_t j = 0; j < d.t; ++j) p(i, j) *= modifiers.kept(b, h, i, j);
        outputs[1].as<float>()[(b * d.h + h) * d.s + i] = static_cast<float>(largest + std::log(sum));
      }
      const Matrix o = p * v;
      head(outputs[0], b, h) = o.cast<float>();
    }
  }
}

// With X = scale q k^T, P = exp(logit(X) - lse), M what dropout multiplies by (1 without), D = rowsum(o do):
// dv = (M P)^T do, dX = P (M do v^T - D) logit'(X), dq = scale dX k, dk = scale dX^T q; the sink's column has v = 0:
// dsink = -sum over rows of exp(sink - lse) D.
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const Modifiers modifiers(d, inputs);
  const std::int64_t group = d.h / d.kv;
  std::vector<double> dsink(static_cast<std::size_t>(d.h), 0.0);
  for (std::int64_t b = 0; b < d.b; ++b) {
    const AttentionMask mask = modifiers.mask(b);
    for (std::int64_t kv = 0; kv < d.kv; ++kv) {
      const Matrix k = head(inputs[1], b, kv).cast<double>(), v = head(inputs[2], b, kv).cast<double>();
      Matrix dk = Matrix::Zero(d.t, d.d), dv = Matrix::Zero(d.t, d.dv);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const Matrix q = head(inputs[0], b, h).cast<double>(), o = head(inputs[3], b, h).cast<double>(),
                     dout = head(inputs[5], b, h).cast<double>();
        const Matrix x = d.scale * (q * k.transpose());
        Matrix p = Matrix::Zero(d.s, d.t), dx = dout * v.transpose();
        for (std::int64_t i = 0; i < d.s; ++i) {
          const double lse = inputs[4].as<float>()[(b * d.h + h) * d.s + i];
          const double delta = o.row(i).dot(dout.row(i));
          for (std::int64_t j = 0; j < d.t; ++j) {
            if (mask.visible(i, j)) p(i, j) = std::exp(modifiers.logit(mask, h, i, j, x(i, j)) - lse);
            const double kept = modifiers.kept(b, h, i, j);
            dx(i, j) = p(i, j) * (kept * dx(i, j) - delta) * modifiers.steepness(x(i, j));
            p(i, j) *= kept;
          }
          if (modifiers.sink())
            dsink[static_cast<std::size_t>(h)] -= std::exp(modifiers.sink()[h] - lse) * delta;
        }
        dv += p.transpose() * dout;
        const Matrix dq = d.scale * (dx * k);
        head(outputs[0], b, h) = dq.cast<float>();
        dk += d.scale * (dx.transpose() * q);
      }
      head(outputs[1], b, kv) = dk.cast<float>();
      head(outputs[2], b, kv) = dv.cast<float>();
    }
  }
  if (modifiers.sink()) std::copy(dsink.begin(), dsink.end(), outputs[3].as<float>());
}

}  // namespace meshloom::kernels::flash_attention_parts
