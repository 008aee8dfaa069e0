#include "layers/quantized/quantized_linear.h"

#include "kernels/int8_matmul/int8_matmul.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantize_dequantize/quantize_dequantize.h"
#include "layers/core/experts.h"
#include "layers/core/linear.h"

namespace meshloom::layers {
namespace {

kernels::EightBitFloat format_of(const std::string& name) {
  for (const auto format : {kernels::EightBitFloat::e4m3, kernels::EightBitFloat::e5m2})
    if (kernels::to_string(format) == name) return format;
  throw Error("Fp8Product", "a format must be e4m3 or e5m2, or '' for none", "'" + name + "'");
}

Tensor rounded(Tensor x, const std::string& format) {
  return format.empty() ? x : kernels::quantize_dequantize(x, format_of(format));
}

}  // namespace

Tensor Int8Product::multiply(Tensor x, Tensor w, Tensor bias) const {
  return kernels::int8_matmul(kernels::quantize_rows(x), kernels::quantize_rows(w),
                              {.bias = bias, .x = x, .w = w});
}

Tensor Fp8Product::multiply(Tensor x, Tensor w, Tensor bias) const {
  const Tensor y = kernels::matmul(rounded(x, forward), rounded(w, forward), {.trans_b = true, .bias = bias});
  return backward.empty() ? y : kernels::quantize_dequantize_grad(y, format_of(backward));
}

std::unique_ptr<Module> QuantizedLinear::Config::build(const Place& place) const {
  return std::make_unique<QuantizedLinear>(*this, place);
}

std::unique_ptr<layers::Config> QuantizedLinear::Config::merged_config() const {
  auto linear = std::make_unique<Linear::Config>();
  linear->bias = bias;
  linear->init = init;
  return linear;
}

QuantizedLinear::QuantizedLinear(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      product_(config.product),
      weight_(parameter("weight", {dims_.output, dims_.input}, {dims_.output_axis, dims_.input_axis},
                        config.init)) {
  if (inherited<Experts>())
    fail(
        "must not be below a mixture of experts, which is not supported yet; `except` leaves such layers out",
        "one of an expert");
  if (!product_) fail("must have a product, such as Int8Product", "none");
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor QuantizedLinear::forward(Context& ctx, Tensor x) {
  return map_rows(ctx, x, dims_, [&](Tensor rows) {
    return product_->multiply(rows, ctx.parameter(weight_), bias_ ? ctx.parameter(*bias_) : Tensor{});
  });
}

void add_quantized_linear_classes(ClassTable& classes) {
  classes.add<Int8Product>();
  classes.add<Fp8Product>();
  classes.add<QuantizedLinear::Config>();
}

}  // namespace meshloom::layers
