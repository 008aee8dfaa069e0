#include "layers/position/sinusoidal.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/layout/layout.h"
#include "kernels/split/split.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> SinusoidalPosition::Config::build(const Place& place) const {
  return std::make_unique<SinusoidalPosition>(*this, place);
}

SinusoidalPosition::SinusoidalPosition(const Config& config, const Place& place)
    : EmbeddingPosition(place), dim_(config.dims.input) {
  if (config.pairing != "half" && config.pairing != "interleaved")
    fail("pairing must be half or interleaved", "'" + config.pairing + "'");
  if (!(config.theta > 0)) fail("theta must be positive", std::to_string(config.theta));
  if (dim_ % 2 != 0) fail("must have an even number of features", std::to_string(dim_));
  options_.theta = config.theta;
  options_.pairing =
      config.pairing == "half" ? kernels::RopePairing::half : kernels::RopePairing::interleaved;
  options_.backwards = true;
}

Tensor SinusoidalPosition::forward(Context& ctx, Tensor x) {
  const std::int64_t sequence = x.dim(1), pairs = dim_ / 2;
  // Rotating the pair (0, 1) backwards by an angle gives the (sine, cosine) of the angle.
  const Tensor zeros = kernels::constant(ctx.builder(), 0, {1, pairs}),
               ones = kernels::constant(ctx.builder(), 1, {1, pairs});
  Tensor pair = kernels::concat_rows({zeros, ones});
  if (options_.pairing == kernels::RopePairing::interleaved) pair = kernels::permute(pair, {1, 0});
  const Tensor rows = kernels::elementwise({kernels::reshape(pair, {dim_})}, {kernels::Expr::input(0)},
                                           {1, sequence, 1, dim_})
                          .front();
  const Positions* positions = ctx.find<Positions>();
  kernels::RopeOptions options = options_;
  // The position of a token in a step may be beyond the number of its tokens, so that no table of them has it.
  const bool own = positions && ctx.find<InferenceStep>();
  if (own) options.positions = positions->ids;
  const Tensor waves = kernels::reshape(kernels::rope(rows, options), {sequence, dim_});
  if (own) positions = nullptr;
  return ctx.mark(kernels::add(x, positions ? kernels::embedding(waves, positions->ids) : waves), ctx.tag(),
                  {axis::kBatch, axis::kSeq, axis::kEmbed});
}

void add_sinusoidal_classes(ClassTable& classes) { classes.add<SinusoidalPosition::Config>(); }

}  // namespace meshloom::layers
