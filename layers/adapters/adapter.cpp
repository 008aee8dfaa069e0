#include "layers/adapters/adapter.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "layers/core/experts.h"

namespace meshloom::layers {

Tensor row_sums(Tensor x) {
  kernels::Shape rows = x.shape();
  const std::int64_t columns = rows.back(), count = x.type().elements() / columns;
  rows.pop_back();
  const Tensor ones = kernels::constant(*x.builder, 1.0, {columns, 1});
  return kernels::reshape(kernels::matmul(kernels::reshape(x, {count, columns}), ones), rows);
}

Adapter::Adapter(const Config& config, const Place& place) : Layer(place), dims_(config.dims) {
  if (const Experts* experts = inherited<Experts>()) experts_ = experts->count;
  provide(Frozen{});
  base_ = &inner(config.base, dims_);
  quantized_ = base_->quantized_weight();
  declare_adapter();
}

Tensor Adapter::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  Tensor y = base_->forward(ctx, x);
  kernels::Shape shape = y.shape();
  const std::int64_t rows = y.type().elements() / dims_.output;
  const bool flat = shape.size() == 2;
  y = adapt(ctx, flat ? x : kernels::reshape(x, {rows, dims_.input}),
            flat ? y : kernels::reshape(y, {rows, dims_.output}));
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  return flat ? y : kernels::reshape(y, shape);
}

const Parameter* Adapter::base_parameter(const std::string& name) const {
  for (const Parameter& parameter : base_->parameters())
    if (parameter.path == join(path(), name)) return &parameter;
  return nullptr;
}

std::string Adapter::merged_weight() const {
  const std::string path = join(this->path(), "weight");
  for (const Parameter& parameter : base_->parameters())
    if (parameter.storage && parameter.storage->source == path) return path;
  return base_weight().path;
}

void Adapter::require_weight() {
  if (quantized_)
    quantized_->keep_squared_row_norms();
  else
    (void)base_weight();
}

Tensor Adapter::squared_row_norms(Context& ctx) {
  if (quantized_) return quantized_->squared_row_norms(ctx);
  const Tensor weight = ctx.parameter(base_weight());
  return row_sums(kernels::mul(weight, weight));
}

Tensor Adapter::base_matmul(Context& ctx, Tensor x) {
  if (quantized_) return quantized_->matmul(ctx, x);
  return kernels::matmul(x, ctx.parameter(base_weight()), {.trans_b = true});
}

const Parameter& Adapter::base_weight() const {
  const Parameter* weight = base_parameter("weight");
  kernels::Shape shape{dims_.output, dims_.input};
  if (experts_ > 0) shape.insert(shape.begin(), experts_);
  if (!weight || weight->type.shape != shape)
    fail("the adapted layer must have a weight (output, input) of its own, as a Linear has", "none");
  return *weight;
}

}  // namespace meshloom::layers
