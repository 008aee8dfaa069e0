#include "layers/quantized/block_quantized_linear.h"

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
  return map_rows(ctx, x, dims_,
                  [&](Tensor rows) { return matmul(ctx, rows, bias_ ? ctx.parameter(*bias_) : Tensor{}); });
}

void BlockQuantizedLinear::refuse_row_norms() const {
  fail("an adapter that needs the norms of the weight's rows, such as Dora, must not be around it; use Lora",
       "one that does");
}

Tensor BlockQuantizedLinear::matmul(Context& ctx, Tensor x, Tensor bias) {
  return kernels::block_quantized_matmul(x, ctx.parameter(weight_), storage_.options(bias));
}

void add_block_quantized_linear_classes(ClassTable& classes) { classes.add<BlockQuantizedLinear::Config>(); }

}  // namespace meshloom::layers
