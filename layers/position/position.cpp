#include "layers/position/position.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/iota/iota.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void EmbeddingPosition::check_length(const Context& ctx, Tensor x, std::int64_t max_length) const {
  // The row of an inference step holds several sequences, and trace_decode() has checked how long they become.
  if (x.dim(1) > max_length && !ctx.find<InferenceStep>())
    fail("must get sequences of at most " + std::to_string(max_length) + " tokens", std::to_string(x.dim(1)));
}

std::unique_ptr<Module> LearnedPosition::Config::build(const Place& place) const {
  return std::make_unique<LearnedPosition>(*this, place);
}

LearnedPosition::LearnedPosition(const Config& config, const Place& place)
    : EmbeddingPosition(place),
      max_length_(config.max_length),
      weight_(
          parameter("weight", {max_length_, config.dims.input}, {"", config.dims.input_axis}, config.init)) {}

Tensor LearnedPosition::forward(Context& ctx, Tensor x) {
  check_length(ctx, x, max_length_);
  const Positions* positions = ctx.find<Positions>();
  const Tensor rows = kernels::embedding(ctx.parameter(weight_),
                                         positions ? positions->ids : kernels::iota(ctx.builder(), x.dim(1)));
  return ctx.mark(kernels::add(x, rows), ctx.tag(), {axis::kBatch, axis::kSeq, axis::kEmbed});
}

std::unique_ptr<Module> SequenceLimit::Config::build(const Place& place) const {
  return std::make_unique<SequenceLimit>(*this, place);
}

SequenceLimit::SequenceLimit(const Config& config, const Place& place)
    : EmbeddingPosition(place), max_length_(config.max_length) {
  if (max_length_ <= 0) fail("max_length must be positive", std::to_string(max_length_));
}

Tensor SequenceLimit::forward(Context& ctx, Tensor x) {
  check_length(ctx, x, max_length_);
  return x;
}

std::unique_ptr<Module> RotaryPosition::Config::build(const Place& place) const {
  return std::make_unique<RotaryPosition>(*this, place);
}

RotaryPosition::RotaryPosition(const Config& config, const Place& place)
    : QueryKeyPosition(place), head_dim_(config.dims.input) {
  if (config.pairing != "half" && config.pairing != "interleaved")
    fail("pairing must be half or interleaved", "'" + config.pairing + "'");
  if (!(config.theta > 0)) fail("theta must be positive", std::to_string(config.theta));
  options_.theta = config.theta;
  options_.pairing =
      config.pairing == "half" ? kernels::RopePairing::half : kernels::RopePairing::interleaved;
  options_.dims = config.rotary_dims.value_or(head_dim_);
  if (options_.dims <= 0 || options_.dims > head_dim_ || options_.dims % 2 != 0)
    fail("must rotate an even number of features, at most the head dimension, " + std::to_string(head_dim_),
         std::to_string(options_.dims));
  config.adjust(options_, path());
}

Tensor RotaryPosition::forward(Context& ctx, Tensor x) {
  check_features(x, head_dim_);
  kernels::RopeOptions options = options_;
  if (ctx.find<InferenceStep>()) options.positions = ctx.get<Positions>("Positions").ids;
  const Tensor y = kernels::rope(x, options);
  // The axes are those of x: the heads of queries and of keys have different ones.
  const std::vector<std::string> axes = ctx.builder().program().value(x.id).axes;
  return axes.empty() ? y : ctx.mark(y, ctx.tag(), axes);
}

void add_position_classes(ClassTable& classes) {
  classes.add<LearnedPosition::Config>();
  classes.add<SequenceLimit::Config>();
  classes.add<RotaryPosition::Config>();
}

}  // namespace meshloom::layers
