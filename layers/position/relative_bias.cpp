#include "layers/position/relative_bias.h"

#include <cmath>

#include "kernels/elementwise/expr.h"
#include "kernels/relative_bias/relative_bias.h"
#include "layers/core/axes.h"

namespace meshloom::layers {

std::unique_ptr<Module> RelativeBias::Config::build(const Place& place) const {
  return std::make_unique<RelativeBias>(*this, place);
}

RelativeBias::RelativeBias(const Config& config, const Place& place)
    : DistanceBias(place),
      weight_(parameter("weight", {config.buckets, config.dims.heads}, {"", axis::kHeads}, config.init)) {
  const std::int64_t factor = config.bidirectional ? 4 : 2;
  if (config.buckets < factor || config.buckets % factor != 0)
    fail("buckets must be a positive multiple of " + std::to_string(factor), std::to_string(config.buckets));
  if (config.max_distance <= config.buckets / factor)
    fail("max_distance must be above the " + std::to_string(config.buckets / factor) +
             " distances that have their own bucket",
         std::to_string(config.max_distance));
  bucket_ = bucket(config.buckets, config.max_distance, config.bidirectional);
}

std::string RelativeBias::bucket(std::int64_t buckets, std::int64_t max_distance, bool bidirectional) {
  const std::int64_t count = bidirectional ? buckets / 2 : buckets, exact = count / 2;
  // The distance in both directions, or that of keys before the query only.
  using kernels::Expr;
  const Expr offset = Expr::input(0), distance = bidirectional ? abs(offset) : max(0 - offset, 0);
  Expr chosen = min(distance, static_cast<double>(exact));
  if (bidirectional) chosen = static_cast<double>(count) * (offset > 0) + chosen;
  // In f32, as in the published models: where a bucket begins depends on the rounding of the logarithm.
  const auto span =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto growing = [&](std::int64_t n) {
    const float ratio = std::log(static_cast<float>(n) / static_cast<float>(exact)) / span;
    return static_cast<std::int64_t>(ratio * static_cast<float>(count - exact));
  };
  std::int64_t n = exact;
  for (std::int64_t bucket = 1; bucket < count - exact; ++bucket) {
    while (growing(n) < bucket) ++n;
    chosen = chosen + (distance > static_cast<double>(n - 1));
  }
  return to_string(kernels::expression_of({chosen}));
}

void RelativeBias::apply(Context& ctx, kernels::FlashAttentionOptions& options) {
  const std::int64_t sequence = ctx.get<Tokens>("Tokens").sequence;
  const Tensor bias = kernels::relative_bias(ctx.parameter(weight_), bucket_, sequence, sequence);
  options.bias = ctx.mark(bias, "recompute.distance_bias", {"", axis::kHeads, axis::kSeq, ""});
}

void add_relative_bias_classes(ClassTable& classes) { classes.add<RelativeBias::Config>(); }

}  // namespace meshloom::layers
