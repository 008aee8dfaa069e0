#include "layers/quantized/block_quantized_linear.h"

#include "kernels/layout/layout.h"
#include "layers/core/experts.h"
#include "layers/core/linear.h"

namespace meshloom::layers {

std::unique_ptr<Module> BlockQuantizedLinear::Config::build(const Place& place) const {
  return std::make_unique<BlockQuantizedLinear>(*this, place);
}

std::unique_ptr<layers::Config> BlockQuantizedLinear::Config::merged_config() const {
  auto linear = std::make_unique<Linear::Config>();
  linear->bias = bias;
  linear->init = init;
  return linear;
}

BlockQuantizedLinear::BlockQuantizedLinear(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      storage_(path(), config.blocks, dims_.output, dims_.input),
      weight_(quantized_parameter("weight_blocks", storage_.type(), {dims_.output_axis, dims_.input_axis},
                                  config.init, storage_.storage("weight"))) {
  if (inherited<Experts>())
    fail(
        "must not be below a mixture of experts, which is not supported yet; `except` leaves such layers out",
        "one of an expert");
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor BlockQuantizedLinear::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims_.input, dims_.input});
  const Tensor y = matmul(ctx, x, bias_ ? ctx.parameter(*bias_) : Tensor{});
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

void BlockQuantizedLinear::keep_squared_row_norms() {
  fail("an adapter that needs the norms of the weight's rows, such as Dora, must not be around it; use Lora",
       "one that does");
}

Tensor BlockQuantizedLinear::squared_row_norms(Context& /*ctx*/) {
  fail("must have no norms of rows", "a call");
}

Tensor BlockQuantizedLinear::matmul(Context& ctx, Tensor x, Tensor bias) {
  return kernels::block_quantized_matmul(x, ctx.parameter(weight_), storage_.options(bias));
}

void add_block_quantized_linear_classes(ClassTable& classes) { classes.add<BlockQuantizedLinear::Config>(); }

}  // namespace meshloom::layers
