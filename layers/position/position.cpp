#include "layers/position/position.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/iota/iota.h"

namespace meshloom::layers {

std::unique_ptr<Module> LearnedPosition::Config::build(const Place& place) const {
  return std::make_unique<LearnedPosition>(*this, place);
}

LearnedPosition::LearnedPosition(const Config& config, const Place& place)
    : EmbeddingPosition(place),
      max_length_(config.max_length),
      weight_(
          parameter("weight", {max_length_, config.dims.input}, {"", config.dims.input_axis}, config.init)) {}

Tensor LearnedPosition::forward(Context& ctx, Tensor x) {
  const std::int64_t sequence = x.dim(1);
  if (sequence > max_length_)
    fail("has a vector for " + std::to_string(max_length_) + " positions",
         "a sequence of " + std::to_string(sequence));
  const Positions* positions = ctx.find<Positions>();
  const Tensor rows = kernels::embedding(ctx.parameter(weight_),
                                         positions ? positions->ids : kernels::iota(ctx.builder(), sequence));
  return ctx.mark(kernels::add(x, rows), ctx.tag(), {axis::kBatch, axis::kSeq, axis::kEmbed});
}

std::unique_ptr<Module> RotaryPosition::Config::build(const Place& place) const {
  return std::make_unique<RotaryPosition>(*this, place);
}

RotaryPosition::RotaryPosition(const Config& config, const Place& place)
    : QueryKeyPosition(place), head_dim_(config.dims.input) {
  if (config.pairing != "half" && config.pairing != "interleaved")
    fail("pairing is half or interleaved", "'" + config.pairing + "'");
  if (!(config.theta > 0)) fail("theta is positive", std::to_string(config.theta));
  options_.theta = config.theta;
  options_.pairing =
      config.pairing == "half" ? kernels::RopePairing::half : kernels::RopePairing::interleaved;
  options_.dims = config.rotary_dims.value_or(head_dim_);
  if (options_.dims <= 0 || options_.dims > head_dim_ || options_.dims % 2 != 0)
    fail("rotates an even number of features up to the head dimension, " + std::to_string(head_dim_),
         std::to_string(options_.dims));
  config.adjust(options_, path());
}

Tensor RotaryPosition::forward(Context& ctx, Tensor x) {
  check_features(x, head_dim_);
  const Tensor y = kernels::rope(x, options_);
  // The heads axis of queries is not that of keys: whatever x has.
  const std::vector<std::string> axes = ctx.builder().program().value(x.id).axes;
  return axes.empty() ? y : ctx.mark(y, ctx.tag(), axes);
}

void add_position_classes(ClassTable& classes) {
  classes.add<LearnedPosition::Config>();
  classes.add<RotaryPosition::Config>();
}

}  // namespace meshloom::layers
