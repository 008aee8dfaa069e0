#include "layers/feed_forward.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

void FeedForward::Config::fields(FieldVisitor& v) {
  v("hidden_dim", hidden_dim);
  v("activation", activation);
  v("gate", gate);
  v("up", up);
  v("down", down);
}

std::unique_ptr<Module> FeedForward::Config::build(const Place& place) const {
  return std::make_unique<FeedForward>(*this, place);
}

FeedForward::FeedForward(const Config& config, const Place& place) : Layer(place) {
  if (!config.activation) fail("an activation is needed", "none");
  const std::int64_t hidden = config.hidden_dim;
  const Dims widen{config.dims.input, hidden, config.dims.input_axis, axis::kMlp};
  if (config.gate) gate_ = &child("gate", config.gate, widen);
  up_ = &child("up", config.up, widen);
  down_ = &child("down", config.down, {hidden, config.dims.output, axis::kMlp, config.dims.output_axis});
  expression_ = config.activation->expression("x0");
  if (gate_) expression_ = "mul(" + expression_ + ",x1)";
}

Tensor FeedForward::forward(Context& ctx, Tensor x) {
  std::vector<Tensor> operands;
  if (gate_) operands.push_back((*gate_)(ctx, x));
  operands.push_back((*up_)(ctx, x));
  const Tensor hidden = kernels::elementwise(operands, expression_);
  ctx.builder().tag(hidden, "feed_forward.hidden");
  return (*down_)(ctx, hidden);
}

void add_feed_forward_classes(ClassTable& classes) { classes.add<FeedForward::Config>(); }

}  // namespace meshloom::layers
