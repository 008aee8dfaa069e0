#include "trainer/learner/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/core/axes.h"

namespace meshloom::trainer {
namespace {

using kernels::Tensor;

bool orthogonalised(const layers::ParameterInfo& info) {
  return holds_matrices(info) &&
         std::find(info.axes.begin(), info.axes.end(), layers::axis::kVocab) == info.axes.end();
}

// Maps x of norm 1 to about U V^T of its singular value decomposition: singular values end between 0.7 and
// 1.2.
Tensor orthogonal(Tensor x, std::int64_t iterations) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const auto [a1, a2] = kernels::inputs<2>();  // A and its square
  const bool tall = x.dim(-2) > x.dim(-1);     // A is the smaller of X X^T and X^T X
  for (std::int64_t i = 0; i < iterations; ++i) {
    const Tensor gram = kernels::matmul(x, x, {.trans_a = tall, .trans_b = !tall});
    const Tensor polynomial = kernels::elementwise({gram, kernels::matmul(gram, gram)}, b * a1 + c * a2);
    const Tensor scaled = kernels::scale(x, a);
    x = tall ? kernels::matmul(x, polynomial, {.residual = scaled})
             : kernels::matmul(polynomial, x, {.residual = scaled});
  }
  return x;
}

// Divides each matrix of x by its norm.
Tensor normalised(Tensor x) {
  constexpr double kSmallest = 1e-7;  // against a division by zero
  const auto [value, sum] = kernels::inputs<2>();
  if (x.type().rank() == 2)
    return kernels::elementwise({x, kernels::square_sum(x)}, value / (sqrt(sum) + kSmallest));
  kernels::Builder& builder = *x.builder;
  const std::int64_t experts = x.dim(0), count = x.type().elements() / experts;
  const Tensor squares = kernels::reshape(kernels::mul(x, x), {experts, count});
  const Tensor sums = kernels::matmul(squares, kernels::constant(builder, 1, {count, 1}));
  const Tensor factors = kernels::elementwise({sums}, 1 / (sqrt(value) + kSmallest));
  const Tensor spread = kernels::matmul(factors, kernels::constant(builder, 1, {1, count}));
  return kernels::mul(x, kernels::reshape(spread, x.type().shape));
}

}  // namespace

void Muon::Config::fields(layers::FieldVisitor& v) {
  AdamW::Config::fields(v);
  v("momentum", momentum,
    {"Decay per step of the running sum of a matrix's gradients.", layers::below_one(),
     layers::means("decay of a sum of gradients")});
  v("nesterov", nesterov,
    {"Whether the update looks one step ahead: the gradient plus momentum times the new sum.",
     layers::means("gradient once more in front of the sum")});
  v("iterations", iterations,
    {"Steps of the Newton-Schulz iteration that makes the update orthogonal.", layers::between(1, 20)});
}

std::vector<Slot> Muon::Config::slots(const layers::ParameterInfo& info) const {
  return orthogonalised(info) ? std::vector<Slot>{slot_like(info, "m")} : AdamW::Config::slots(info);
}

std::vector<Tensor> Muon::Config::update(const Update& u) const {
  if (!orthogonalised(u.info)) return AdamW::Config::update(u);
  const kernels::Shape& shape = u.info.type.shape;
  const auto [g, scale, apply, m] = kernels::inputs<4>();
  const kernels::Expr sum = momentum * m + g * scale;
  const std::vector<Tensor> next =
      kernels::elementwise({u.gradient, u.control.scale, u.control.apply, u.slots.at(0)},
                           {select(apply, sum, m), nesterov ? g * scale + momentum * sum : sum}, shape);
  const double size = 0.2 * std::sqrt(static_cast<double>(std::max(shape[shape.size() - 2], shape.back())));
  const auto [p, direction, rate, applied] = kernels::inputs<4>();
  const kernels::Expr step = size * direction + u.info.decay * weight_decay * p;
  return {kernels::elementwise(
              {u.parameter, orthogonal(normalised(next[1]), iterations), u.control.rate, u.control.apply},
              select(applied, p - rate * step, p)),
          next[0]};
}

void Muon::Config::check() const {
  AdamW::Config::check();
  require_fraction("momentum", momentum);
  require(iterations >= 1 && iterations <= 20, "iterations", "must be between 1 and 20",
          static_cast<double>(iterations));
}

void add_muon_classes(layers::ClassTable& classes) { classes.add<Muon::Config>(); }

}  // namespace meshloom::trainer
