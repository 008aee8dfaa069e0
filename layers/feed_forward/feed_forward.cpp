#include "layers/feed_forward/feed_forward.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

void FeedForward::Config::fields(FieldVisitor& v) {
  v("hidden_dim", hidden_dim,
    {"Features of the hidden activations; in a mixture of experts, those of each expert.", at_least(1)});
  v("activation", activation, {"The activation function, which is applied to the gate if there is one."});
  v("gate_proj", gate_proj,
    {"The projection to the gate, which multiplies the result of up_proj; none: there is no gate."});
  v("up_proj", up_proj, {"The projection to hidden_dim features."});
  v("down_proj", down_proj, {"The projection to the layer's features."});
}

std::unique_ptr<Module> FeedForward::Config::build(const Place& place) const {
  return std::make_unique<FeedForward>(*this, place);
}

FeedForward::FeedForward(const Config& config, const Place& place) : Layer(place) {
  if (!config.activation) fail("activation must not be none", "none");
  const std::int64_t hidden = config.hidden_dim;
  const Dims up{config.dims.input, hidden, config.dims.input_axis, axis::kMlp};
  if (config.gate_proj) gate_proj_ = &child("gate_proj", config.gate_proj, up);
  up_proj_ = &child("up_proj", config.up_proj, up);
  down_proj_ = &child("down_proj", config.down_proj,
                      {hidden, config.dims.output, axis::kMlp, config.dims.output_axis});
  const auto [gate, up_x] = kernels::inputs<2>();
  hidden_ = config.activation->apply(gate);
  if (gate_proj_) hidden_ = hidden_ * up_x;
}

Tensor FeedForward::forward(Context& ctx, Tensor x) {
  std::vector<Tensor> operands;
  if (gate_proj_) operands.push_back((*gate_proj_)(ctx, x));
  operands.push_back((*up_proj_)(ctx, x));
  const Tensor hidden = kernels::elementwise(operands, hidden_);
  ctx.builder().tag(hidden, "feed_forward.hidden");
  if (hidden.type().rank() == 2) ctx.builder().axes(hidden, {axis::kTokens, axis::kMlp});
  return (*down_proj_)(ctx, hidden);
}

void add_feed_forward_classes(ClassTable& classes) { classes.add<FeedForward::Config>(); }

}  // namespace meshloom::layers
