// Formulas in C++ give the text that is stored for them.
#include "kernels/elementwise/expr.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace meshloom::kernels {
namespace {

std::string text(const std::vector<Expr>& roots) { return to_string(expression_of(roots)); }

TEST(Expr, EveryOperatorAndFunctionHasItsText) {
  const auto [x, y] = inputs<2>();
  const std::vector<std::pair<Expr, std::string>> all{
      {x + y, "add(x0,x1)"},
      {x - y, "sub(x0,x1)"},
      {x * y, "mul(x0,x1)"},
      {x / y, "div(x0,x1)"},
      {-x, "neg(x0)"},
      {x > y, "gt(x0,x1)"},
      {x < y, "gt(x1,x0)"},
      {is_finite(x), "is_finite(x0)"},
      {select(x, y, 2), "select(x0,x1,2)"},
      {max(x, y), "max(x0,x1)"},
      {min(x, y), "min(x0,x1)"},
      {abs(x), "abs(x0)"},
      {exp(x), "exp(x0)"},
      {log(x), "log(x0)"},
      {sqrt(x), "sqrt(x0)"},
      {rsqrt(x), "rsqrt(x0)"},
      {tanh(x), "tanh(x0)"},
      {sigmoid(x), "sigmoid(x0)"},
      {erf(x), "erf(x0)"},
  };
  for (const auto& [formula, expected] : all) {
    EXPECT_EQ(text({formula}), expected);
    EXPECT_EQ(to_string(parse_expression(expected)), expected);  // what a user may write
  }
}

TEST(Expr, PrecedenceIsThatOfCpp) {
  const auto [x, y, z] = inputs<3>();
  EXPECT_EQ(text({x - y * z + 1}), "add(sub(x0,mul(x1,x2)),1)");
  EXPECT_EQ(text({x / y / z > 2 * x}), "gt(div(div(x0,x1),x2),mul(2,x0))");
}

// A handle that is used twice is one node, and numbers are folded, as in text.
TEST(Expr, SharesAndFolds) {
  const auto [x, y] = inputs<2>();
  const Expr gate = sigmoid(x), kept = 2.0 * Expr(3) * x;
  EXPECT_EQ(text({gate * gate, gate + y}), "t0=sigmoid(x0);mul(t0,t0);add(t0,x1)");
  EXPECT_EQ(text({kept}), "mul(6,x0)");
  EXPECT_EQ(text({x + 0, 1 * y, select(1, x, y)}), "x0;x1;x0");
  EXPECT_EQ(expression_of({sigmoid(x) * sigmoid(x)}).nodes.size(), 3u);  // equal parts are one node too
}

TEST(Expr, Activations) {
  const Expr x = Expr::input(0);
  EXPECT_EQ(text({silu(x)}), "mul(x0,sigmoid(x0))");
  EXPECT_EQ(text({relu(x)}), "max(x0,0)");
  EXPECT_EQ(text({gelu(x)}), "mul(mul(0.5,x0),add(1,erf(mul(0.7071067811865476,x0))))");
  EXPECT_EQ(text({gelu_tanh(x)}),
            "mul(mul(0.5,x0),add(1,tanh(mul(0.7978845608028654,add(x0,mul(0.044715,mul(x0,mul(x0,x0))))))))");
}

}  // namespace
}  // namespace meshloom::kernels
