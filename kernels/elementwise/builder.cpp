#include <utility>

#include "hal/error.h"
#include "kernels/elementwise/elementwise.h"

namespace meshloom::kernels {
namespace {

Attrs attrs_of(const std::vector<Expr>& outputs, Shape shape, DType dtype) {
  Attrs attrs{{"shape", std::move(shape)}, {"expr", to_string(expression_of(outputs))}};
  if (dtype != DType::f32) attrs.set("dtype", std::string(hal::to_string(dtype)));
  return attrs;
}

}  // namespace

std::vector<Tensor> elementwise(const std::vector<Tensor>& inputs, const std::vector<Expr>& outputs,
                                Shape shape, DType dtype) {
  if (inputs.empty()) throw hal::Error("elementwise", "needs an input here; constant() takes none");
  return inputs.front().builder->call("elementwise", inputs, attrs_of(outputs, std::move(shape), dtype));
}

Tensor elementwise(const std::vector<Tensor>& inputs, const Expr& output) {
  Shape shape;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& candidate = inputs[i].shape();
    const std::int64_t more = elements(candidate) - elements(shape);
    if (i == 0 || more > 0 || (more == 0 && candidate.size() > shape.size())) shape = candidate;
  }
  DType dtype = inputs.front().dtype();
  for (const Tensor& input : inputs)
    if (input.dtype() != dtype) dtype = DType::f32;
  return elementwise(inputs, {output}, shape, dtype).front();
}

namespace {

Tensor unary(Tensor x, Expr (*function)(const Expr&)) { return elementwise({x}, function(Expr::input(0))); }

}  // namespace

Tensor add(Tensor a, Tensor b) {
  const auto [x, y] = kernels::inputs<2>();
  return elementwise({a, b}, x + y);
}
Tensor mul(Tensor a, Tensor b) {
  const auto [x, y] = kernels::inputs<2>();
  return elementwise({a, b}, x * y);
}
Tensor scale(Tensor a, double factor) { return elementwise({a}, Expr::input(0) * factor); }
Tensor constant(Builder& builder, double value, Shape shape, DType dtype) {
  return builder.call1("elementwise", {}, attrs_of({value}, std::move(shape), dtype));
}
Tensor silu(Tensor x) { return unary(x, silu); }
Tensor gelu(Tensor x) { return unary(x, gelu); }
Tensor gelu_tanh(Tensor x) { return unary(x, gelu_tanh); }
Tensor relu(Tensor x) { return unary(x, relu); }
Tensor swiglu(Tensor gate, Tensor up) {
  const auto [x, y] = kernels::inputs<2>();
  return elementwise({gate, up}, silu(x) * y);
}

}  // namespace meshloom::kernels
