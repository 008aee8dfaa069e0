#include "kernels/elementwise/expression.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"

namespace meshloom::kernels {
namespace {

std::string normal(const std::string& text) { return to_string(parse_expression(text)); }
double value(const Expression& e, const std::vector<double>& x, std::size_t root = 0) {
  std::vector<double> out(e.roots.size());
  evaluate(e, x.data(), out.data());
  return out[root];
}
double value(const std::string& text, const std::vector<double>& x) {
  return value(parse_expression(text), x);
}

TEST(Expression, PrintsWhatItReads) {
  for (const char* text :
       {"x0", "0.5", "add(x0,x1)", "mul(x0,sigmoid(x0));neg(x0)", "select(gt(x0,0),x0,neg(x1))",
        "t0=sigmoid(x0);mul(x0,t0);t0", "max(x0,-1.5e-07)", "is_finite(x2)"})
    EXPECT_EQ(normal(text), text);
  EXPECT_EQ(normal(" add( x0 , mul(x1,2) ) ; x0"), "add(x0,mul(x1,2));x0");
}

TEST(Expression, SharesFoldsAndSimplifies) {
  EXPECT_EQ(parse_expression("mul(sigmoid(x0),sigmoid(x0))").nodes.size(), 3u);
  EXPECT_EQ(normal("mul(sigmoid(x0),sigmoid(x0))"), "t0=sigmoid(x0);mul(t0,t0)");
  EXPECT_EQ(normal("add(mul(x0,1),0)"), "x0");
  EXPECT_EQ(normal("sub(div(x0,1),0)"), "x0");
  EXPECT_EQ(normal("neg(neg(x0))"), "x0");
  EXPECT_EQ(normal("mul(x0,add(1,2))"), "mul(x0,3)");
  EXPECT_EQ(normal("select(1,x0,x1)"), "x0");
  EXPECT_EQ(normal("select(gt(0,1),x1,x0)"), "x0");
  // Not equal where x0 is not finite.
  EXPECT_EQ(normal("mul(x0,0)"), "mul(x0,0)");
  // Not a number that text could hold.
  EXPECT_EQ(normal("div(1,0)"), "div(1,0)");
  EXPECT_EQ(parse_expression("mul(x0,1)").nodes.size(), 1u);
  EXPECT_EQ(parse_expression("select(1,x0,x7)").inputs, 1);
}

TEST(Expression, EvaluatesEveryFunction) {
  const std::vector<double> x{0.7, -1.3};
  EXPECT_DOUBLE_EQ(value("add(x0,x1)", x), -0.6);
  EXPECT_DOUBLE_EQ(value("sub(x0,x1)", x), 2.0);
  EXPECT_DOUBLE_EQ(value("mul(x0,x1)", x), -0.91);
  EXPECT_DOUBLE_EQ(value("div(x0,x1)", x), 0.7 / -1.3);
  EXPECT_DOUBLE_EQ(value("max(x0,x1)", x), 0.7);
  EXPECT_DOUBLE_EQ(value("min(x0,x1)", x), -1.3);
  EXPECT_DOUBLE_EQ(value("gt(x0,x1)", x), 1);
  EXPECT_DOUBLE_EQ(value("gt(x1,x0)", x), 0);
  EXPECT_DOUBLE_EQ(value("neg(x0)", x), -0.7);
  EXPECT_DOUBLE_EQ(value("abs(x1)", x), 1.3);
  EXPECT_DOUBLE_EQ(value("exp(x0)", x), std::exp(0.7));
  EXPECT_DOUBLE_EQ(value("log(x0)", x), std::log(0.7));
  EXPECT_DOUBLE_EQ(value("sqrt(x0)", x), std::sqrt(0.7));
  EXPECT_DOUBLE_EQ(value("rsqrt(x0)", x), 1 / std::sqrt(0.7));
  EXPECT_DOUBLE_EQ(value("tanh(x1)", x), std::tanh(-1.3));
  EXPECT_DOUBLE_EQ(value("sigmoid(x1)", x), 1 / (1 + std::exp(1.3)));
  EXPECT_DOUBLE_EQ(value("erf(x0)", x), std::erf(0.7));
  EXPECT_DOUBLE_EQ(value("select(gt(x0,x1),x0,x1)", x), 0.7);
  EXPECT_DOUBLE_EQ(value("select(gt(x1,x0),x0,x1)", x), -1.3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_DOUBLE_EQ(value("is_finite(x0)", {nan}), 0);
  EXPECT_DOUBLE_EQ(value("is_finite(x0)", {std::numeric_limits<double>::infinity()}), 0);
  EXPECT_DOUBLE_EQ(value("is_finite(x0)", {3.0}), 1);
  EXPECT_DOUBLE_EQ(value("select(is_finite(x0),x0,5)", {nan}), 5);
  EXPECT_DOUBLE_EQ(value("eq(x0,0.7)", x), 1);
  EXPECT_DOUBLE_EQ(value("eq(x0,x1)", x), 0);
  EXPECT_DOUBLE_EQ(value("floor(x1)", x), -2);
  EXPECT_DOUBLE_EQ(value("mod(x0,2)", x), 0.7);
  EXPECT_DOUBLE_EQ(value("mod(-7,x0)", {4.0}), 1);
  EXPECT_DOUBLE_EQ(value("mod(7,x0)", {-4.0}), -1);
  EXPECT_DOUBLE_EQ(value("mod(-8,x0)", {4.0}), 0);
}

TEST(Expression, ReadsOperators) {
  EXPECT_EQ(normal("x0 * sigmoid(x0) + 2 * -x1"), "add(mul(x0,sigmoid(x0)),mul(2,neg(x1)))");
  EXPECT_EQ(normal("x0-x1-2 / x0"), "sub(sub(x0,x1),div(2,x0))");
  EXPECT_EQ(normal("(x0 - -1.5) * ( x1 )"), "mul(sub(x0,-1.5),x1)");
  EXPECT_EQ(normal("x0 < x1"), "gt(x1,x0)");
  EXPECT_EQ(normal("x0 > x1"), "gt(x0,x1)");
  EXPECT_EQ(normal("x0 <= x1"), "sub(1,gt(x0,x1))");
  EXPECT_EQ(normal("x0 >= x1"), "sub(1,gt(x1,x0))");
  EXPECT_EQ(normal("x0 == x1"), "eq(x0,x1)");
  EXPECT_EQ(normal("x0 != x1"), "sub(1,eq(x0,x1))");
  EXPECT_EQ(normal("not not x0 > 1"), "gt(x0,1)");
  EXPECT_EQ(normal("x0 > 1 and x1 or not x0"), "max(mul(gt(x0,1),select(x1,1,0)),sub(1,select(x0,1,0)))");
  EXPECT_EQ(normal("0 < x0 < 8"), "mul(gt(x0,0),gt(8,x0))");
  EXPECT_EQ(normal("t0=x0 % 3;t0 == x1;t0 + 1"), "t0=mod(x0,3);eq(t0,x1);add(t0,1)");
  EXPECT_EQ(to_string(parse_expression("key % 64 == query", {"query", "key"})), "eq(mod(x1,64),x0)");
  // As numbers, against the machine's own.
  for (int a = -20; a <= 20; ++a)
    for (const int b : {-7, -3, 1, 5}) {
      const std::vector<double> x{static_cast<double>(a), static_cast<double>(b)};
      const double floored = std::floor(x[0] / x[1]);
      EXPECT_EQ(value("x0 // x1", x), floored);
      EXPECT_EQ(value("x0 % x1", x), x[0] - x[1] * floored);
      EXPECT_EQ(value("(x0 <= x1) + 2 * (x0 >= x1) + 4 * (x0 != x1)", x),
                (a <= b) + 2 * (a >= b) + 4 * (a != b));
      EXPECT_EQ(value("x1 <= x0 < 3 or not (x0 and x1 != 1)", x), (b <= a && a < 3) || !(a && b != 1));
    }
}

// "0*x0 + 1*x0 + ...": as many different terms.
std::string long_sum(int terms) {
  std::string text = "0.5";
  for (int i = 0; i < terms; ++i) text += fmt::format("+{}*x0", i + 2);
  return text;
}

TEST(Expression, LongSumsAreReadAgain) {
  const std::string text = long_sum(1300), printed = normal(text);
  const Expression e = parse_expression(printed);
  EXPECT_EQ(to_string(e), printed);
  EXPECT_EQ(value(e, {2.0}), value(text, {2.0}));
  EXPECT_EQ(value(differentiate(parse_expression(long_sum(600)), {0}), {2.0, 1.0}), (601 * 602 - 2) / 2.0);
}

// 100,000 terms overran the stack, 20,000 took 23 s.
TEST(Expression, TooLongIsAnErrorAtOnce) {
  const std::clock_t begin = std::clock();  // of the processor, as others may use it too
  for (const std::string& text : {long_sum(100'000), long_sum(20'000)}) try {
      parse_expression(text);
      ADD_FAILURE() << "was read";
    } catch (const hal::Error& error) {
      EXPECT_NE(std::string(error.what()).find("must need at most 4096 inputs, numbers and operations"),
                std::string::npos);
      EXPECT_NE(std::string(error.what()).find("0.5+2*x0+3*x0"), std::string::npos) << "as it was written";
      EXPECT_LT(std::string(error.what()).size(), 500u);
    }
  for (const std::string& text :
       {std::string(100'000, '('), std::string(1500, '(') + "x0" + std::string(1500, ')')})
    EXPECT_THROW(parse_expression(text), hal::Error);
  // Nothing that is built without text recurses either.
  Expression deep;
  std::int32_t last = deep.add({.op = ExprOp::input});
  for (int i = 0; i < 200'000; ++i) last = deep.add({.op = i % 2 ? ExprOp::exp : ExprOp::neg, .a = last});
  deep.roots = {last};
  EXPECT_GT(to_string(deep).size(), 200'000u);
  EXPECT_EQ(differentiate(deep, {0}).roots.size(), 1u);
  EXPECT_LT(static_cast<double>(std::clock() - begin), 10.0 * CLOCKS_PER_SEC);
}

TEST(Expression, ZerosOfBothSignsAreOneNode) {
  Expression e;
  EXPECT_EQ(e.add({.op = ExprOp::constant, .value = 0.0}), e.add({.op = ExprOp::constant, .value = -0.0}));
}

TEST(Expression, SaysWhereTextIsWrong) {
  const auto says = [](const std::string& text, const std::string& part) {
    try {
      parse_expression(text);
      ADD_FAILURE() << text << " was read";
    } catch (const hal::Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  says("", "at character 0");
  says("add(x0)", "at character 6: must be ','");
  says("add(x0,x1", "at character 9: must be ')'; found the end");
  says("add(x0,x1,x2)", "must be ')'");
  says("frob(x0)", "at character 0: must be a known function; found 'frob(x0)'");
  says("x0 x1", "must end here");
  says("x0;", "at character 3");
  says("t0", "was defined before");
  says("t0=x0", "at least one output");
  says("inf", "known function");
  says("1e999", "finite number");
  says("x", "known function");
  says("x0 <", "found the end");
  says("x0 + + x1", "at character 5: must be a function");
  says("(x0", "must be ')'");
  says("x0 = x1", "must end here");
  says("x0 and", "found the end");
  const auto named = [](const std::string& text, const std::string& part) {
    try {
      parse_expression(text, {"q", "k"});
      ADD_FAILURE() << text << " was read";
    } catch (const hal::Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  named("q - j < 3", "at character 4: must be an input (q, k) or a known function; found 'j < 3'");
  named("x0 < k", "must be an input (q, k)");
  named("q <", "must be a function, an input (q, k) or a finite number; found the end");
  std::string deep = "x0";
  for (int i = 0; i < 2000; ++i) deep = "neg(" + deep + ")";
  says(deep, "deeper");
}

// A chain in which every value is used twice doubles a tree at each link, but not its text.
TEST(Expression, TextStaysAsLongAsTheGraph) {
  Expression e = parse_expression("mul(x0,sigmoid(x0))");
  const Expression link = e;
  for (int i = 0; i < 40; ++i) e = compose(link, 0, e, 0, {-1}, {0});
  EXPECT_LT(to_string(e).size(), 3000u);
  EXPECT_EQ(to_string(parse_expression(to_string(e))), to_string(e));
  EXPECT_DOUBLE_EQ(value(parse_expression(to_string(e)), {1.5}), value(e, {1.5}));
}

TEST(Expression, ComposesWithRenumbering) {
  const Expression consumer = parse_expression("mul(x0,x1);neg(x1)"),
                   producer = parse_expression("x0;add(x0,x1)");
  // x1 of the consumer becomes producer root 1 over inputs 2 and 0.
  const Expression e = compose(consumer, 1, producer, 1, {1, -1}, {2, 0});
  EXPECT_EQ(to_string(e), "t0=add(x2,x0);mul(x1,t0);neg(t0)");
  EXPECT_THROW(compose(consumer, 1, producer, 2, {1, -1}, {2, 0}), hal::Error);
  EXPECT_THROW(compose(consumer, 1, producer, 1, {-1, -1}, {2, 0}), hal::Error);
}

TEST(Expression, DerivativesOfSimpleThingsAreSimple) {
  const auto d = [](const std::string& text, const std::vector<std::int32_t>& wrt) {
    return to_string(differentiate(parse_expression(text), wrt));
  };
  EXPECT_EQ(d("add(x0,x1)", {0, 1}), "x2;x2");
  EXPECT_EQ(d("mul(x0,x1)", {0, 1}), "mul(x2,x1);mul(x2,x0)");
  EXPECT_EQ(d("mul(x0,0.25)", {0}), "mul(x1,0.25)");
  EXPECT_EQ(d("max(x0,0)", {0}), "select(gt(x0,0),x1,0)");
  EXPECT_EQ(d("gt(x0,x1)", {0, 1}), "0;0");
  EXPECT_EQ(d("eq(x0,x1);floor(x0)", {0, 1}), "0;0");
  EXPECT_EQ(d("mod(x0,2)", {0}), "x1");
  EXPECT_EQ(d("x0;neg(x0)", {0}), "add(x1,neg(x2))");
}

// In double and with a tiny step: differences are exact to about 1e-8.
TEST(Expression, DerivativesEqualDifferences) {
  Catalog catalog;
  add_contracts(catalog);
  const Contract& contract = catalog.contract("elementwise");
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case test = contract.random_case({mix(seed, 3)});
    const Expression e = parse_expression(test.attrs.text("expr"));
    std::vector<std::int32_t> wrt;
    for (std::int32_t i = 0; i < e.inputs; ++i) wrt.push_back(i);
    const Expression d = differentiate(e, wrt);
    ASSERT_EQ(d.roots.size(), wrt.size());
    Rng rng(seed);
    std::vector<double> x, dy;
    for (std::int32_t i = 0; i < e.inputs; ++i) x.push_back(rng.uniform(-1, 1));
    for (std::size_t i = 0; i < e.roots.size(); ++i) dy.push_back(rng.uniform(-1, 1));
    std::vector<double> all = x;
    all.insert(all.end(), dy.begin(), dy.end());
    const auto loss = [&](std::size_t i, double step) {
      std::vector<double> moved = x, y(e.roots.size());
      moved[i] += step;
      evaluate(e, moved.data(), y.data());
      double sum = 0;
      for (std::size_t r = 0; r < y.size(); ++r) sum += y[r] * dy[r];
      return sum;
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-6, difference = (loss(i, h) - loss(i, -h)) / (2 * h), got = value(d, all, i);
      EXPECT_NEAR(got, difference, 1e-7 * (1 + std::abs(got))) << test.attrs.text("expr") << " by x" << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

}  // namespace
}  // namespace meshloom::kernels
