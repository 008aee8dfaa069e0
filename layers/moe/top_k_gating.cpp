#include "layers/moe/top_k_gating.h"

#include <algorithm>
#include <cmath>

#include "kernels/concat/concat.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/moe_routing/moe_routing.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/softmax/softmax.h"
#include "kernels/top_k/top_k.h"
#include "layers/attention/mask.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {
namespace {

// (E): how often each expert is in `ids`.
Tensor count(Tensor ids, std::int64_t experts) {
  const Tensor ones = kernels::constant(*ids.builder, 1, ids.shape());
  return kernels::reduce_sum(kernels::scatter_add(ones, ids, experts), 1);
}

Tensor largest(Tensor x) {
  const Tensor row = kernels::reshape(x, {1, x.dim(0)});
  return kernels::reshape(kernels::gather(row, kernels::top_k(row, 1)), {1});
}

}  // namespace

void TopK::Config::fields(FieldVisitor& v) {
  v("k", k, {"The number of experts that each token goes to, at most that of all experts.", at_least(1)});
  v("router", router, {"The projection of each token to a logit per expert."});
  v("score", score, {"The function from logits to scores."});
  v("normalize", normalize,
    {"Whether the chosen scores are divided by their sum, before a capacity drops tokens."});
  v("weight_scale", weight_scale, {"Factor on the weights of the chosen experts."});
  v("capacity", capacity,
    {"The largest number of tokens of an expert; none: there is no limit. Inference with a cache has none."});
  v("regularizers", regularizers, {"Losses and biases that balance the load of the experts."});
}

std::unique_ptr<Module> TopK::Config::build(const Place& place) const {
  return std::make_unique<TopK>(*this, place);
}

TopK::TopK(const Config& config, const Place& place)
    : Gating(place),
      k_(config.k),
      experts_(config.dims.experts),
      score_(config.score),
      normalize_(config.normalize),
      weight_scale_(config.weight_scale),
      capacity_(config.capacity) {
  if (k_ < 1 || k_ > experts_)
    fail("k must be from 1 to the number of experts, " + std::to_string(experts_), std::to_string(k_));
  if (!score_) fail("score must not be none", "none");
  if (k_ == 1 && normalize_ && experts_ > 1 && !config.regularizers.empty())
    fail(
        "the normalised weight of a single expert is always 1, from which the router cannot learn: "
        "set normalize=false, or regularizers=[] for a router that does not change",
        "k = 1 with normalize");
  if (capacity_ && !(capacity_->factor > 0 && capacity_->min > 0))
    fail("factor and min of a capacity must be above 0",
         std::to_string(capacity_->factor) + " and " + std::to_string(capacity_->min));
  router_ = &child("router", config.router, {config.dims.input, experts_, config.dims.input_axis, ""});
  for (std::size_t i = 0; i < config.regularizers.size(); ++i)
    regularizers_.push_back(&child("regularizer" + std::to_string(i), config.regularizers[i], {experts_}));
}

Gating::Choice TopK::forward(Context& ctx, Tensor x) {
  const Tensor logits = (*router_)(ctx, x), log_scores = score_->log_scores(logits);
  Tensor scores, ranking;
  for (RouterRegularizer* regularizer : regularizers_)
    if (const Tensor bias = regularizer->bias(ctx)) {
      if (!scores) ranking = scores = score_->scores(logits);
      ranking = kernels::add(ranking, bias);
    }
  if (!ranking) ranking = log_scores;
  const Tensor mask = token_mask(ctx, x.dim(0)), ids = choose(ranking, mask);
  Tensor weights;
  if (normalize_) {
    weights = kernels::softmax(kernels::gather(log_scores, ids)).y;
  } else {
    if (!scores) scores = score_->scores(logits);
    weights = kernels::gather(scores, ids);
  }
  if (weight_scale_ != 1) weights = kernels::scale(weights, weight_scale_);
  Routing routing{.logits = logits, .probabilities = {}, .load = {}, .k = k_, .mask = mask, .count = {}};
  if (ctx.training()) {
    if (mask) routing.count = kernels::reduce_sum(mask, 0);
    routing.probabilities = kernels::softmax(log_scores).y;
    routing.load = count(ids, experts_);
    observe(ctx, routing);
  }
  return {limit(ctx, ids, routing), ctx.mark(weights, "gating.weights", {axis::kTokens, ""})};
}

Tensor TopK::choose(Tensor ranking, Tensor mask) const {
  if (!mask) return kernels::top_k(ranking, k_);
  // k more columns, which have the largest elements in rows of padding and the smallest in the others.
  constexpr double kLargest = 3e38;
  const kernels::Expr chosen = select(kernels::Expr::input(0), -kLargest, kLargest);
  const Tensor more = kernels::elementwise({mask}, {chosen}, {k_, mask.dim(0)})[0];
  return kernels::top_k(kernels::concat(ranking, kernels::permute(more, {1, 0})), k_);
}

Tensor TopK::limit(Context& ctx, Tensor ids, const Routing& routing) {
  // The tokens of a step are of several sequences, and one must not drop those of another.
  if (!capacity_ || ctx.find<InferenceStep>()) return ids;
  const Tokens* tokens = ctx.find<Tokens>();
  const std::int64_t rows = ids.dim(0), span = tokens ? tokens->sequence : rows;
  const double even = static_cast<double>(span * k_) / static_cast<double>(experts_);
  const std::int64_t max =
      std::max(capacity_->min, static_cast<std::int64_t>(std::floor(capacity_->factor * even)));
  const Tensor kept = kernels::expert_capacity(ids, experts_, max, span);
  if (ctx.training()) {
    const Tensor left = kernels::reduce_sum(count(kept, experts_), 0);
    ctx.summary("dropped", kernels::elementwise({routing.per_token(left, 1 / static_cast<double>(k_))},
                                                1 - kernels::Expr::input(0)));
  }
  return kept;
}

void TopK::observe(Context& ctx, const Routing& routing) {
  const double scale = 1 / routing.choices();
  ctx.summary("load_max", routing.per_token(largest(routing.load), scale));
  ctx.summary("load_min", routing.per_token(largest(kernels::scale(routing.load, -1)), -scale));
  for (RouterRegularizer* regularizer : regularizers_) {
    Context below = ctx.child(regularizer->name());
    regularizer->observe(below, routing);
  }
}

void add_top_k_gating_classes(ClassTable& classes) {
  classes.add<Capacity>();
  classes.add<TopK::Config>();
}

}  // namespace meshloom::layers
