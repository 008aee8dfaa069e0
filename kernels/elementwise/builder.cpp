#include <fmt/format.h>

#include <utility>

#include "hal/error.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/rewrite.h"

namespace meshloom::kernels {
namespace {

// Each text is an expression with names of its own; the attribute holds all of them in normal form, so that
// equal calculations have equal attributes.
std::string joined(const std::vector<std::string>& expressions) {
  Expression all;
  for (const std::string& text : expressions) {
    const Expression one = parse_expression(text);
    std::vector<std::int32_t> done(one.nodes.size(), -1);
    for (std::int32_t root : one.roots) all.roots.push_back(copy_into(all, one, root, done));
  }
  return to_string(compact(all));
}

}  // namespace

std::vector<Tensor> elementwise(const std::vector<Tensor>& inputs,
                                const std::vector<std::string>& expressions, Shape shape, DType dtype) {
  if (inputs.empty()) throw hal::Error("elementwise", "needs an input here; constant() takes none");
  Attrs attrs{{"shape", std::move(shape)}, {"expr", joined(expressions)}};
  if (dtype != DType::f32) attrs.set("dtype", std::string(hal::to_string(dtype)));
  return inputs.front().builder->call("elementwise", inputs, std::move(attrs));
}

Tensor elementwise(const std::vector<Tensor>& inputs, const std::string& expression) {
  Shape shape;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& candidate = inputs[i].shape();
    const std::int64_t more = elements(candidate) - elements(shape);
    if (i == 0 || more > 0 || (more == 0 && candidate.size() > shape.size())) shape = candidate;
  }
  DType dtype = inputs.front().dtype();
  for (const Tensor& input : inputs)
    if (input.dtype() != dtype) dtype = DType::f32;
  const std::vector<Tensor> outputs = elementwise(inputs, {expression}, shape, dtype);
  if (outputs.size() != 1)
    throw hal::Error("elementwise", "was taken for an expression with one output", "'" + expression + "'");
  return outputs.front();
}

Tensor add(Tensor a, Tensor b) { return elementwise({a, b}, "add(x0,x1)"); }
Tensor mul(Tensor a, Tensor b) { return elementwise({a, b}, "mul(x0,x1)"); }
Tensor scale(Tensor a, double factor) { return elementwise({a}, fmt::format("mul(x0,{})", factor)); }
Tensor constant(Builder& builder, double value, Shape shape) {
  return builder.call1("elementwise", {},
                       {{"shape", std::move(shape)}, {"expr", joined({fmt::format("{}", value)})}});
}
Tensor silu(Tensor x) { return elementwise({x}, "mul(x0,sigmoid(x0))"); }
Tensor gelu(Tensor x) { return elementwise({x}, "mul(mul(0.5,x0),add(1,erf(mul(0.7071067811865476,x0))))"); }
Tensor gelu_tanh(Tensor x) {
  return elementwise({x},
                     "mul(mul(0.5,x0),add(1,tanh(mul(0.7978845608028654,"
                     "add(x0,mul(0.044715,mul(x0,mul(x0,x0))))))))");
}
Tensor relu(Tensor x) { return elementwise({x}, "max(x0,0)"); }
Tensor swiglu(Tensor gate, Tensor up) { return elementwise({gate, up}, "mul(mul(x0,sigmoid(x0)),x1)"); }

}  // namespace meshloom::kernels
