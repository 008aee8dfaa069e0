// Attention head by head with the whole matrix of probabilities, in double.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/flash_attention/dropout.h"
#include "kernels/flash_attention/logit.h"
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
    tensors_ = {integers(d.q_segments), integers(d.k_segments), integers(d.prefix), integers(d.query_offset)};
    if (at(d.sink)) sink_ = at(d.sink)->as<float>();
    if (at(d.slopes)) slopes_ = at(d.slopes)->as<float>();
    if (at(d.rng_state)) draw_ = attention_dropout(d, at(d.rng_state)->as<std::int32_t>());
    if (at(d.bias)) bias_ = at(d.bias)->as<float>();
    if (at(d.attention_bitmask)) visible_ = at(d.attention_bitmask)->as<std::uint32_t>();
  }

  AttentionMask mask(std::int64_t b, std::int64_t h) const {
    MaskTensors tensors = tensors_;
    if (visible_) tensors.bitmask = visible_ + d_.bitmask_at(b, h);
    return d_.mask().of_row(tensors, b);
  }
  const float* sink() const { return sink_; }
  // scale q.k -> the logit of query i and key j
  double logit(const AttentionMask& mask, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
               double x) const {
    x = AttentionLogit{d_.soft_cap, slopes_}(h, i + mask.offset - j, x);
    if (bias_) x += bias_[d_.bias_at(b, h) + i * d_.t + j];
    return x;
  }
  // What the probability of the pair is multiplied by.
  double kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (d_.rng_state < 0) return 1;
    return draw_.factor(b, h, i, j) == 0 ? 0 : d_.kept();
  }
  // Its derivative.
  double softcap_grad(double x) const {
    if (d_.soft_cap <= 0) return 1;
    const double y = std::tanh(x / d_.soft_cap);
    return 1 - y * y;
  }

 private:
  const AttentionDims& d_;
  MaskTensors tensors_;
  const float *sink_ = nullptr, *slopes_ = nullptr, *bias_ = nullptr;
  const std::uint32_t* visible_ = nullptr;
  AttentionDropout draw_{};
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const Modifiers modifiers(d, inputs);
  for (std::int64_t b = 0; b < d.b; ++b) {
    for (std::int64_t h = 0; h < d.h; ++h) {
      const AttentionMask mask = modifiers.mask(b, h);
      const std::int64_t kv = h / (d.h / d.kv);
      const Matrix q = head(inputs[0], b, h).cast<double>(), k = head(inputs[1], b, kv).cast<double>(),
                   v = head(inputs[2], b, kv).cast<double>();
      Matrix p = d.scale * (q * k.transpose());
      for (std::int64_t i = 0; i < d.s; ++i) {
        const double sink = modifiers.sink() ? modifiers.sink()[h] : -kInfinity;
        double largest = sink, sum = 0;
        for (std::int64_t j = 0; j < d.t; ++j) {
          p(i, j) = mask.visible(i, j) ? modifiers.logit(mask, b, h, i, j, p(i, j)) : -kInfinity;
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

namespace {

// The backward pass of one head of one batch row, as far as the logits: with X = scale q k^T, P = exp(logit(X) - lse), M what
// dropout multiplies by (1 without) and D = rowsum(o do), dL = P (M do v^T - D).
struct HeadGradient {
  Matrix q, k, x, d_o, kept_p, d_logits;
  Eigen::VectorXd lse, delta;

  HeadGradient(const AttentionDims& d, const Modifiers& modifiers, std::span<const ConstTensorView> inputs,
               std::int64_t b, std::int64_t h) {
    const std::int64_t kv = h / (d.h / d.kv);
    const AttentionMask mask = modifiers.mask(b, h);
    q = head(inputs[0], b, h).cast<double>(), k = head(inputs[1], b, kv).cast<double>();
    d_o = head(inputs[5], b, h).cast<double>();
    const Matrix o = head(inputs[3], b, h).cast<double>(), v = head(inputs[2], b, kv).cast<double>();
    x = d.scale * (q * k.transpose());
    d_logits = d_o * v.transpose();
    kept_p = Matrix::Zero(d.s, d.t);
    delta = o.cwiseProduct(d_o).rowwise().sum();
    lse = Eigen::Map<const Eigen::VectorXf>(inputs[4].as<float>() + (b * d.h + h) * d.s, d.s).cast<double>();
    for (std::int64_t i = 0; i < d.s; ++i)
      for (std::int64_t j = 0; j < d.t; ++j) {
        const double p =
            mask.visible(i, j) ? std::exp(modifiers.logit(mask, b, h, i, j, x(i, j)) - lse(i)) : 0;
        const double kept = modifiers.kept(b, h, i, j);
        d_logits(i, j) = p * (kept * d_logits(i, j) - delta(i));
        kept_p(i, j) = kept * p;
      }
  }
};

}  // namespace

// dv = (M P)^T do, dX = dL logit'(X), dq = scale dX k, dk = scale dX^T q; the sink's column has v = 0:
// dsink = -sum over rows of exp(sink - lse) D.
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const Modifiers modifiers(d, inputs);
  const std::int64_t group = d.h / d.kv;
  std::vector<double> dsink(static_cast<std::size_t>(d.h), 0.0);
  for (std::int64_t b = 0; b < d.b; ++b) {
    for (std::int64_t kv = 0; kv < d.kv; ++kv) {
      Matrix dk = Matrix::Zero(d.t, d.d), dv = Matrix::Zero(d.t, d.dv);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const HeadGradient at(d, modifiers, inputs, b, h);
        const Matrix dx =
            at.d_logits.cwiseProduct(at.x.unaryExpr([&](double x) { return modifiers.softcap_grad(x); }));
        if (modifiers.sink())
          for (std::int64_t i = 0; i < d.s; ++i)
            dsink[static_cast<std::size_t>(h)] -= std::exp(modifiers.sink()[h] - at.lse(i)) * at.delta(i);
        dv += at.kept_p.transpose() * at.d_o;
        const Matrix dq = d.scale * (dx * at.k);
        head(outputs[0], b, h) = dq.cast<float>();
        dk += d.scale * (dx.transpose() * at.q);
      }
      head(outputs[1], b, kv) = dk.cast<float>();
      head(outputs[2], b, kv) = dv.cast<float>();
    }
  }
  if (modifiers.sink()) std::copy(dsink.begin(), dsink.end(), outputs[3].as<float>());
}

void reference_bias_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs) {
  const AttentionDims d = attention_dims(call);
  const Modifiers modifiers(d, inputs);
  std::vector<Matrix> sums(static_cast<std::size_t>(outputs[0].type.elements() / (d.s * d.t)),
                           Matrix::Zero(d.s, d.t));
  for (std::int64_t b = 0; b < d.b; ++b)
    for (std::int64_t h = 0; h < d.h; ++h)
      sums[static_cast<std::size_t>(d.bias_at(b, h) / (d.s * d.t))] +=
          HeadGradient(d, modifiers, inputs, b, h).d_logits;
  float* into = outputs[0].as<float>();
  for (const Matrix& sum : sums) {
    Eigen::Map<Floats>(into, d.s, d.t) = sum.cast<float>();
    into += d.s * d.t;
  }
}

}  // namespace meshloom::kernels::flash_attention_parts
