#include <fmt/format.h>

#include <utility>

#include "kernels/core/rng.h"
#include "kernels/elementwise/parts.h"

namespace meshloom::kernels::elementwise_parts {
namespace {

Case make(std::string name, Shape shape, std::vector<Shape> inputs, std::string expr, bool slow = false) {
  Case result{std::move(name), {}, {{"shape", std::move(shape)}, {"expr", std::move(expr)}}, slow};
  for (Shape& input : inputs) result.inputs.push_back({DType::f32, std::move(input)});
  return result;
}

// Random expressions that stay within the domain of every function and do not amplify rounding errors.
class Grower {
 public:
  Grower(Rng& rng, std::int64_t inputs) : dice_(rng), inputs_(inputs) {}

  std::string grow(int depth) {
    if (depth == 0 || dice_.flip(0.1)) return leaf();
    const auto next = [&] { return grow(depth - 1); };
    switch (dice_.integer(0, 17)) {
      case 0:
        return fmt::format("add({},{})", next(), next());
      case 1:
        return fmt::format("sub({},{})", next(), next());
      case 2:
        return fmt::format("mul({},{})", next(), leaf());
      case 3:
        return fmt::format("div({},add(1,abs({})))", next(), next());
      case 4:
        return fmt::format("max({},{})", next(), next());
      case 5:
        return fmt::format("min({},{})", next(), next());
      case 6:
        return fmt::format("neg({})", next());
      case 7:
        return fmt::format("abs({})", next());
      case 8:
        return fmt::format("exp(neg(abs({})))", next());
      case 9:
        return fmt::format("log(add(0.5,abs({})))", next());
      case 10:
        return fmt::format("sqrt(add(0.1,abs({})))", next());
      case 11:
        return fmt::format("rsqrt(add(0.5,abs({})))", next());
      case 12:
        return fmt::format("tanh({})", next());
      case 13:
        return fmt::format("sigmoid({})", next());
      case 14:
        return fmt::format("erf({})", next());
      // Nothing but inputs, times powers of two, is compared and cut to integers: a rounding error may turn anything else.
      case 15:
        return fmt::format("mul(0.25,floor(mul(4,{})))", input());
      case 16:
        return fmt::format("select(eq(floor(mul(2,{})),floor(mul(2,{}))),{},mod({},0.125))", input(), input(),
                           next(), input());
      default:
        return fmt::format("select(gt({},{}),{},{})", input(), input(), next(), next());
    }
  }

 private:
  std::string input() { return fmt::format("x{}", dice_.integer(0, inputs_ - 1)); }
  std::string leaf() {
    if (dice_.flip(0.8)) return input();
    return fmt::format("{}", static_cast<double>(dice_.integer(-200, 200)) / 100);
  }

  Rng& dice_;
  std::int64_t inputs_;
};

}  // namespace

std::vector<Case> cases() {
  const std::string gelu = "mul(mul(0.5,x0),add(1,erf(mul(0.7071067811865476,x0))))";
  const std::string gelu_tanh =
      "mul(mul(0.5,x0),add(1,tanh(mul(0.7978845608028654,add(x0,mul(0.044715,mul(x0,mul(x0,x0))))))))";
  const std::string swiglu = "mul(mul(x0,sigmoid(x0)),x1)";
  return {
      make("constant", {37}, {}, "0.25"),
      make("one", {1}, {{1}, {1}}, "add(x0,x1)"),
      make("add", {17, 29}, {{17, 29}, {17, 29}}, "add(x0,x1)"),
      make("bias", {17, 29}, {{17, 29}, {29}}, "add(x0,x1)"),
      make("bias-4d", {2, 5, 3, 7}, {{2, 5, 3, 7}, {3, 7}}, "mul(x0,x1)"),
      make("scalar", {1031}, {{1031}, {1}}, "mul(x0,x1)"),
      make("broadcast", {6, 19}, {{19}}, "x0"),
      make("broadcast-one", {67}, {{1}}, "x0"),
      make("outer-scalars", {3, 5}, {{1}, {1}, {5}}, "add(mul(x0,x2),x1)"),
      make("silu", {257}, {{257}}, "mul(x0,sigmoid(x0))"),
      make("gelu", {31, 33}, {{31, 33}}, gelu),
      make("gelu-tanh", {31, 33}, {{31, 33}}, gelu_tanh),
      make("relu", {4, 65}, {{4, 65}}, "max(x0,0)"),
      make("swiglu", {13, 96}, {{13, 96}, {13, 96}}, swiglu),
      make("swiglu-grad", {13, 37}, {{13, 37}, {13, 37}, {13, 37}},
           "t0=sigmoid(x0);mul(mul(x2,x1),mul(t0,add(1,mul(x0,sub(1,t0)))));mul(x2,mul(x0,t0))"),
      make("min-max", {99}, {{99}, {99}}, "min(x0,x1);max(x0,x1);abs(sub(x0,x1))"),
      make("functions", {61}, {{61}},
           "exp(x0);log(add(2,x0));sqrt(add(2,x0));rsqrt(add(2,x0));tanh(x0);sigmoid(x0);erf(x0)"),
      make("divide", {7, 11}, {{7, 11}, {7, 11}}, "div(x0,add(2,x1));neg(x0)"),
      make("select", {129}, {{129}, {129}}, "select(gt(x0,x1),x0,neg(x1));gt(x0,0)"),
      make("floors", {131}, {{131}, {131}},
           "floor(mul(x0,8));mod(x0,add(1.5,abs(x1)));mod(x1,-0.25);eq(floor(mul(2,x0)),floor(mul(2,x1)))"),
      make("finite", {83}, {{83}, {83}}, "select(is_finite(x0),x0,0);is_finite(mul(x1,1))"),
      make("clip", {1001}, {{1001}, {1}}, "mul(x0,min(1,div(0.5,add(abs(x1),0.01))))"),
      make("seven-inputs", {5, 13}, {{5, 13}, {5, 13}, {5, 13}, {5, 13}, {13}, {13}, {1}},
           "add(mul(x0,x1),add(mul(x2,x3),add(mul(x4,x5),mul(x0,x6))))"),
      make("smollm2-swiglu", {128, 1536}, {{128, 1536}, {128, 1536}}, swiglu, true),
      make("gpt2-gelu", {256, 3072}, {{256, 3072}}, gelu_tanh, true),
      make("gpt2-residual", {1024, 768}, {{1024, 768}, {1024, 768}}, "add(x0,x1)", true),
  };
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t rank = rng.integer(1, 4), inputs = rng.integer(1, 5), outputs = rng.integer(1, 3);
  Shape shape;
  for (std::int64_t i = 0; i < rank; ++i)
    shape.push_back(rng.extent(rank == 1 ? 3000 : rank == 2 ? 150 : rank == 3 ? 30 : 9));
  std::vector<Shape> shapes;
  for (std::int64_t i = 0; i < inputs; ++i) {
    if (i == 0 || rng.flip(0.6))
      shapes.push_back(shape);
    else if (rng.flip())
      shapes.push_back(Shape(shape.end() - rng.integer(1, rank), shape.end()));
    else
      shapes.push_back({1});
  }
  Grower grower(rng, inputs);
  std::string expr;
  for (std::int64_t i = 0; i < outputs; ++i)
    expr += (i ? ";" : "") + grower.grow(static_cast<int>(rng.integer(0, 4)));
  return make("random", shape, shapes, expr);
}

}  // namespace meshloom::kernels::elementwise_parts
