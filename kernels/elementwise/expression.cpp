#include "kernels/elementwise/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/core/rng.h"

namespace meshloom::kernels {
namespace {

double floored_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double apply(ExprOp op, double a, double b, double c) {
  switch (op) {
    case ExprOp::input:
    case ExprOp::constant:
      return 0;
    case ExprOp::add:
      return a + b;
    case ExprOp::sub:
      return a - b;
    case ExprOp::mul:
      return a * b;
    case ExprOp::div:
      return a / b;
    case ExprOp::max:
      return a > b ? a : b;
    case ExprOp::min:
      return a < b ? a : b;
    case ExprOp::gt:
      return a > b ? 1 : 0;
    case ExprOp::neg:
      return -a;
    case ExprOp::abs:
      return std::abs(a);
    case ExprOp::exp:
      return std::exp(a);
    case ExprOp::log:
      return std::log(a);
    case ExprOp::sqrt:
      return std::sqrt(a);
    case ExprOp::rsqrt:
      return 1 / std::sqrt(a);
    case ExprOp::tanh:
      return std::tanh(a);
    case ExprOp::sigmoid:
      return 1 / (1 + std::exp(-a));
    case ExprOp::erf:
      return std::erf(a);
    case ExprOp::is_finite:
      return std::isfinite(a) ? 1 : 0;
    case ExprOp::select:
      return c != 0 ? a : b;
    case ExprOp::eq:
      return a == b ? 1 : 0;
    case ExprOp::floor:
      return std::floor(a);
    case ExprOp::mod:
      return floored_mod(a, b);
  }
  return 0;
}

double evaluate_node(const ExprNode& node, const double* inputs, const double* values) {
  if (node.op == ExprOp::input) return inputs[node.index];
  if (node.op == ExprOp::constant) return node.value;
  // select's condition is its first operand.
  if (node.op == ExprOp::select) return apply(node.op, values[node.b], values[node.c], values[node.a]);
  return apply(node.op, values[node.a], node.b >= 0 ? values[node.b] : 0, 0);
}

bool is_constant(const Expression& e, std::int32_t node, double value) {
  const ExprNode& n = e.nodes[static_cast<std::size_t>(node)];
  return n.op == ExprOp::constant && n.value == value;
}

// An existing node that equals `node`, where arithmetic says so for every finite and infinite operand; -1 if
// none.
std::int32_t simplified(const Expression& e, const ExprNode& node) {
  switch (node.op) {
    case ExprOp::add:
      if (is_constant(e, node.a, 0)) return node.b;
      if (is_constant(e, node.b, 0)) return node.a;
      return -1;
    case ExprOp::sub:
      return is_constant(e, node.b, 0) ? node.a : -1;
    case ExprOp::mul:
      if (is_constant(e, node.a, 1)) return node.b;
      if (is_constant(e, node.b, 1)) return node.a;
      return -1;
    case ExprOp::div:
      return is_constant(e, node.b, 1) ? node.a : -1;
    case ExprOp::neg: {
      const ExprNode& inner = e.nodes[static_cast<std::size_t>(node.a)];
      return inner.op == ExprOp::neg ? inner.a : -1;
    }
    case ExprOp::select: {
      const ExprNode& condition = e.nodes[static_cast<std::size_t>(node.a)];
      if (condition.op == ExprOp::constant) return condition.value != 0 ? node.b : node.c;
      return node.b == node.c ? node.b : -1;
    }
    default:
      return -1;
  }
}

}  // namespace

int arity(ExprOp op) {
  switch (op) {
    case ExprOp::input:
    case ExprOp::constant:
      return 0;
    case ExprOp::add:
    case ExprOp::sub:
    case ExprOp::mul:
    case ExprOp::div:
    case ExprOp::max:
    case ExprOp::min:
    case ExprOp::gt:
    case ExprOp::eq:
    case ExprOp::mod:
      return 2;
    case ExprOp::select:
      return 3;
    default:
      return 1;
  }
}

std::string_view to_string(ExprOp op) {
  switch (op) {
    case ExprOp::input:
      return "x";
    case ExprOp::constant:
      return "constant";
    case ExprOp::add:
      return "add";
    case ExprOp::sub:
      return "sub";
    case ExprOp::mul:
      return "mul";
    case ExprOp::div:
      return "div";
    case ExprOp::max:
      return "max";
    case ExprOp::min:
      return "min";
    case ExprOp::gt:
      return "gt";
    case ExprOp::neg:
      return "neg";
    case ExprOp::abs:
      return "abs";
    case ExprOp::exp:
      return "exp";
    case ExprOp::log:
      return "log";
    case ExprOp::sqrt:
      return "sqrt";
    case ExprOp::rsqrt:
      return "rsqrt";
    case ExprOp::tanh:
      return "tanh";
    case ExprOp::sigmoid:
      return "sigmoid";
    case ExprOp::erf:
      return "erf";
    case ExprOp::is_finite:
      return "is_finite";
    case ExprOp::select:
      return "select";
    case ExprOp::eq:
      return "eq";
    case ExprOp::floor:
      return "floor";
    case ExprOp::mod:
      return "mod";
  }
  return "?";
}

std::int32_t Expression::add(ExprNode node) {
  const int operands = arity(node.op);
  const auto folded = [&](std::int32_t at) {
    return at < 0 || nodes[static_cast<std::size_t>(at)].op == ExprOp::constant;
  };
  if (operands > 0) {
    if (const std::int32_t same = simplified(*this, node); same >= 0) return same;
    if (folded(node.a) && folded(node.b) && folded(node.c)) {
      const auto constant = [&](std::int32_t at) {
        return at < 0 ? 0 : nodes[static_cast<std::size_t>(at)].value;
      };
      const double values[] = {constant(node.a), constant(node.b), constant(node.c)};
      const double value =
          evaluate_node({.op = node.op, .a = 0, .b = node.b < 0 ? -1 : 1, .c = 2}, nullptr, values);
      // Text has no infinities: such a constant stays an operation.
      if (std::isfinite(value)) return add({.op = ExprOp::constant, .value = value});
    }
  }
  if (node.op == ExprOp::input) inputs = std::max(inputs, node.index + 1);
  const auto [known, fresh] = known_.emplace(node, static_cast<std::int32_t>(nodes.size()));
  if (fresh) nodes.push_back(node);
  return known->second;
}

std::size_t Expression::Hash::operator()(const ExprNode& node) const {
  std::uint64_t state = static_cast<std::uint64_t>(node.op);
  for (const std::int32_t part : {node.a, node.b, node.c, node.index})
    state = mix(state, static_cast<std::uint32_t>(part));
  // The two zeros are equal.
  return static_cast<std::size_t>(mix(state, std::hash<double>()(node.value)));
}

std::int64_t operations(const Expression& expression) {
  return std::count_if(expression.nodes.begin(), expression.nodes.end(),
                       [](const ExprNode& node) { return arity(node.op) > 0; });
}

void evaluate(const Expression& expression, const double* values, double* out) {
  constexpr std::size_t kOnStack = 64;
  double small[kOnStack];
  std::vector<double> large;
  double* results = small;
  if (expression.nodes.size() > kOnStack) {
    large.resize(expression.nodes.size());
    results = large.data();
  }
  for (std::size_t i = 0; i < expression.nodes.size(); ++i)
    results[i] = evaluate_node(expression.nodes[i], values, results);
  for (std::size_t r = 0; r < expression.roots.size(); ++r) out[r] = results[expression.roots[r]];
}

}  // namespace meshloom::kernels
