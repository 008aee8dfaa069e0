#include "kernels/elementwise/rewrite.h"

#include <utility>

#include "hal/error.h"

namespace meshloom::kernels {
namespace {

using Index = std::int32_t;
const ExprNode& at(const Expression& e, Index node) { return e.nodes[static_cast<std::size_t>(node)]; }

// d node / d operand, times `upstream`; -1 where it is zero everywhere.
struct Partials {
  Index a = -1, b = -1, c = -1;
};

class Differentiator {
 public:
  Differentiator(const Expression& from, Expression& to)
      : from_(from), to_(to), adjoint_(from.nodes.size(), -1) {
    std::vector<Index> done(from.nodes.size(), -1);
    for (Index i = 0; i < static_cast<Index>(from.nodes.size()); ++i) copy_into(to_, from_, i, done);
    value_ = done;
  }

  void run() {
    for (std::size_t r = 0; r < from_.roots.size(); ++r)
      accumulate(from_.roots[r], input(from_.inputs + static_cast<Index>(r)));
    for (auto i = static_cast<Index>(from_.nodes.size()); i-- > 0;) {
      const Index upstream = adjoint_[static_cast<std::size_t>(i)];
      if (upstream < 0) continue;
      const ExprNode& node = at(from_, i);
      const Partials partials = chain(node, value(i), upstream);
      if (partials.a >= 0) accumulate(node.a, partials.a);
      if (partials.b >= 0) accumulate(node.b, partials.b);
      if (partials.c >= 0) accumulate(node.c, partials.c);
    }
  }

  // The adjoint of an input, or the constant 0.
  Index of_input(Index index) {
    for (std::size_t i = 0; i < from_.nodes.size(); ++i)
      if (from_.nodes[i].op == ExprOp::input && from_.nodes[i].index == index && adjoint_[i] >= 0)
        return adjoint_[i];
    return constant(0);
  }

 private:
  Index value(Index node) const { return value_[static_cast<std::size_t>(node)]; }
  Index input(Index index) { return to_.add({.op = ExprOp::input, .index = index}); }
  Index constant(double value) { return to_.add({.op = ExprOp::constant, .value = value}); }
  Index make(ExprOp op, Index a, Index b = -1, Index c = -1) {
    return to_.add({.op = op, .a = a, .b = b, .c = c});
  }
  Index mul(Index a, Index b) { return make(ExprOp::mul, a, b); }
  Index sub(Index a, Index b) { return make(ExprOp::sub, a, b); }

  void accumulate(Index node, Index addend) {
    Index& sum = adjoint_[static_cast<std::size_t>(node)];
    sum = sum < 0 ? addend : make(ExprOp::add, sum, addend);
  }

  Partials chain(const ExprNode& node, Index y, Index dy) {
    const Index a = node.a >= 0 ? value(node.a) : -1, b = node.b >= 0 ? value(node.b) : -1;
    switch (node.op) {
      case ExprOp::input:
      case ExprOp::constant:
      case ExprOp::gt:
      case ExprOp::eq:
      case ExprOp::floor:
      case ExprOp::is_finite:
        return {};
      case ExprOp::add:
        return {dy, dy};
      case ExprOp::sub:
        return {dy, make(ExprOp::neg, dy)};
      case ExprOp::mul:
        return {mul(dy, b), mul(dy, a)};
      case ExprOp::div: {
        const Index quotient = make(ExprOp::div, dy, b);
        return {quotient, make(ExprOp::neg, mul(quotient, y))};
      }
      // On a tie the second operand gets all: relu = max(x, 0) has the gradient 0 at 0.
      case ExprOp::max: {
        const Index first = make(ExprOp::gt, a, b);
        return {choose(first, dy, true), choose(first, dy, false)};
      }
      case ExprOp::min: {
        const Index first = make(ExprOp::gt, b, a);
        return {choose(first, dy, true), choose(first, dy, false)};
      }
      case ExprOp::neg:
        return {make(ExprOp::neg, dy)};
      case ExprOp::abs:
        return {mul(dy, sub(make(ExprOp::gt, a, constant(0)), make(ExprOp::gt, constant(0), a)))};
      case ExprOp::exp:
        return {mul(dy, y)};
      case ExprOp::log:
        return {make(ExprOp::div, dy, a)};
      case ExprOp::sqrt:
        return {make(ExprOp::div, mul(constant(0.5), dy), y)};
      case ExprOp::rsqrt:
        return {mul(mul(constant(-0.5), dy), mul(y, mul(y, y)))};
      case ExprOp::tanh:
        return {mul(dy, sub(constant(1), mul(y, y)))};
      case ExprOp::sigmoid:
        return {mul(dy, mul(y, sub(constant(1), y)))};
      case ExprOp::erf: {
        constexpr double kTwoOverSqrtPi = 1.1283791670955126;
        return {mul(dy, mul(constant(kTwoOverSqrtPi), make(ExprOp::exp, make(ExprOp::neg, mul(a, a)))))};
      }
      case ExprOp::mod:
        return {dy, mul(dy, make(ExprOp::div, sub(y, a), b))};
      case ExprOp::select:
        return {-1, choose(a, dy, true), choose(a, dy, false)};
    }
    return {};
  }
  // dy where the condition is what was asked for, else 0 (also when dy is not finite).
  Index choose(Index condition, Index dy, bool when) {
    return when ? make(ExprOp::select, condition, dy, constant(0))
                : make(ExprOp::select, condition, constant(0), dy);
  }

  const Expression& from_;
  Expression& to_;
  std::vector<Index> adjoint_;  // per node of from_: a node of to_
  std::vector<Index> value_;    // the same
};

}  // namespace

std::int32_t copy_into(Expression& to, const Expression& from, std::int32_t root,
                       std::vector<std::int32_t>& done, const std::vector<std::int32_t>& input_map) {
  const auto ready = [&](Index node) { return node < 0 || done[static_cast<std::size_t>(node)] >= 0; };
  std::vector<Index> open{root};  // each waits for those above it
  while (!open.empty()) {
    const Index top = open.back();
    ExprNode node = at(from, top);
    if (!ready(top) && ready(node.a) && ready(node.b) && ready(node.c)) {
      for (Index* operand : {&node.a, &node.b, &node.c})
        if (*operand >= 0) *operand = done[static_cast<std::size_t>(*operand)];
      if (node.op == ExprOp::input && !input_map.empty()) {
        const auto index = static_cast<std::size_t>(node.index);
        if (index >= input_map.size() || input_map[index] < 0)
          throw hal::Error("expression", "every input that is used needs a new number",
                           "x" + std::to_string(index));
        node.index = input_map[index];
      }
      done[static_cast<std::size_t>(top)] = to.add(node);
    }
    if (ready(top)) {
      open.pop_back();
      continue;
    }
    // The first operand is copied first.
    for (const Index operand : {node.c, node.b, node.a})
      if (!ready(operand)) open.push_back(operand);
  }
  return done[static_cast<std::size_t>(root)];
}

Expression compact(const Expression& expression) {
  // Twice: a simplification leaves nodes behind that nothing needs.
  Expression result = expression;
  for (int round = 0; round < 2; ++round) {
    Expression next;
    std::vector<Index> done(result.nodes.size(), -1);
    for (Index root : result.roots) next.roots.push_back(copy_into(next, result, root, done));
    result = std::move(next);
  }
  return result;
}

Expression differentiate(const Expression& expression, const std::vector<std::int32_t>& wrt) {
  Expression result;
  Differentiator differentiator(expression, result);
  differentiator.run();
  for (Index index : wrt) result.roots.push_back(differentiator.of_input(index));
  return compact(result);
}

Expression compose(const Expression& consumer, std::int32_t index, const Expression& producer,
                   std::int32_t root, const std::vector<std::int32_t>& consumer_map,
                   const std::vector<std::int32_t>& producer_map) {
  if (root < 0 || root >= static_cast<Index>(producer.roots.size()))
    throw hal::Error("expression", "the producer must have the root that is composed", std::to_string(root));
  Expression result;
  std::vector<Index> from_producer(producer.nodes.size(), -1);
  const Index replacement = copy_into(result, producer, producer.roots[static_cast<std::size_t>(root)],
                                      from_producer, producer_map);
  std::vector<Index> from_consumer(consumer.nodes.size(), -1);
  for (std::size_t i = 0; i < consumer.nodes.size(); ++i)
    if (consumer.nodes[i].op == ExprOp::input && consumer.nodes[i].index == index)
      from_consumer[i] = replacement;
  for (Index consumer_root : consumer.roots)
    result.roots.push_back(copy_into(result, consumer, consumer_root, from_consumer, consumer_map));
  return compact(result);
}

}  // namespace meshloom::kernels
