// Formulas of the elementwise op, written in C++:
//     const auto [p, g, rate] = inputs<3>();
//     elementwise({parameter, gradient, learning_rate}, p - rate * g);
// An Expr is a handle to a node that never changes, so copies share it. Functions and operators are those of ExprOp
// (kernels/elementwise/expression.h); numbers stand as they are. Text is for formulas that come from a user.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/elementwise/expression.h"

namespace meshloom::kernels {

class Expr {
 public:
  Expr(double constant);                  // must be finite
  static Expr input(std::int32_t index);  // the op's tensor number `index`

  friend Expr operator+(const Expr& a, const Expr& b) { return {ExprOp::add, a, b}; }
  friend Expr operator-(const Expr& a, const Expr& b) { return {ExprOp::sub, a, b}; }
  friend Expr operator*(const Expr& a, const Expr& b) { return {ExprOp::mul, a, b}; }
  friend Expr operator/(const Expr& a, const Expr& b) { return {ExprOp::div, a, b}; }
  friend Expr operator-(const Expr& a) { return {ExprOp::neg, a}; }
  // 1 where it holds, else 0. NaN is neither above nor below a number.
  friend Expr operator>(const Expr& a, const Expr& b) { return {ExprOp::gt, a, b}; }
  friend Expr operator<(const Expr& a, const Expr& b) { return {ExprOp::gt, b, a}; }
  friend Expr is_finite(const Expr& a) { return {ExprOp::is_finite, a}; }
  // `a` where the condition is not 0, else `b`; the other one may be NaN.
  friend Expr select(const Expr& condition, const Expr& a, const Expr& b) {
    return {ExprOp::select, condition, a, b};
  }

  friend Expr max(const Expr& a, const Expr& b) { return {ExprOp::max, a, b}; }
  friend Expr min(const Expr& a, const Expr& b) { return {ExprOp::min, a, b}; }
  friend Expr abs(const Expr& a) { return {ExprOp::abs, a}; }
  friend Expr exp(const Expr& a) { return {ExprOp::exp, a}; }
  friend Expr log(const Expr& a) { return {ExprOp::log, a}; }
  friend Expr sqrt(const Expr& a) { return {ExprOp::sqrt, a}; }
  friend Expr rsqrt(const Expr& a) { return {ExprOp::rsqrt, a}; }
  friend Expr tanh(const Expr& a) { return {ExprOp::tanh, a}; }
  friend Expr sigmoid(const Expr& a) { return {ExprOp::sigmoid, a}; }
  friend Expr erf(const Expr& a) { return {ExprOp::erf, a}; }

 private:
  struct Node;
  friend Expression expression_of(const std::vector<Expr>& roots);
  template <typename... Operands>
  Expr(ExprOp op, const Operands&... operands) : Expr(op, std::vector<Expr>{operands...}) {}
  Expr(ExprOp op, std::vector<Expr> operands);
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  std::shared_ptr<const Node> node_;
};

// Names for the first N tensors of a call.
template <std::size_t N>
std::array<Expr, N> inputs() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Expr, N>{Expr::input(static_cast<std::int32_t>(I))...};
  }
  (std::make_index_sequence<N>());
}

// What an elementwise call stores, with one output for each root.
Expression expression_of(const std::vector<Expr>& roots);

Expr silu(const Expr& x);         // x sigmoid(x)
Expr gelu(const Expr& x);         // x/2 (1 + erf(x/sqrt 2))
Expr gelu_tanh(const Expr& x);    // the tanh approximation, GPT-2's
Expr relu(const Expr& x);         // max(x, 0)
Expr log_sigmoid(const Expr& x);  // log(sigmoid(x)), which does not overflow

}  // namespace meshloom::kernels
