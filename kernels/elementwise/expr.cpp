#include "kernels/elementwise/expr.h"

#include <numbers>
#include <unordered_map>

#include "kernels/elementwise/rewrite.h"

namespace meshloom::kernels {

struct Expr::Node {
  ExprNode node;  // without operands
  std::vector<Expr> operands;
};

Expr::Expr(double constant)
    : node_(std::make_shared<Node>(Node{{.op = ExprOp::constant, .value = constant}, {}})) {}
Expr Expr::input(std::int32_t index) {
  return Expr(std::make_shared<Node>(Node{{.op = ExprOp::input, .index = index}, {}}));
}
Expr::Expr(ExprOp op, std::vector<Expr> operands)
    : node_(std::make_shared<Node>(Node{{.op = op}, std::move(operands)})) {}

Expression expression_of(const std::vector<Expr>& roots) {
  Expression expression;
  std::unordered_map<const Expr::Node*, std::int32_t> known;
  const auto add = [&](const auto& self, const Expr& root) -> std::int32_t {
    const Expr::Node& from = *root.node_;
    if (const auto it = known.find(&from); it != known.end()) return it->second;
    ExprNode node = from.node;
    std::int32_t* const operands[] = {&node.a, &node.b, &node.c};
    for (std::size_t i = 0; i < from.operands.size(); ++i) *operands[i] = self(self, from.operands[i]);
    return known[&from] = expression.add(node);
  };
  for (const Expr& root : roots) expression.roots.push_back(add(add, root));
  return compact(expression);
}

Expr silu(const Expr& x) { return x * sigmoid(x); }
Expr gelu(const Expr& x) { return 0.5 * x * (1 + erf(std::numbers::sqrt2 / 2 * x)); }
Expr gelu_tanh(const Expr& x) {
  constexpr double kSqrtTwoOverPi = 0.7978845608028654, kCubic = 0.044715;
  return 0.5 * x * (1 + tanh(kSqrtTwoOverPi * (x + kCubic * (x * (x * x)))));
}
Expr relu(const Expr& x) { return max(x, 0); }
Expr log_sigmoid(const Expr& x) {
  // One formula around 0: |x| and max(x, 0) have no derivative there. Behind kFar, exp(x) is below the rounding of f32.
  constexpr double kFar = -20;
  return select(x > kFar, -log(1 + exp(-max(x, kFar))), x);
}

}  // namespace meshloom::kernels
