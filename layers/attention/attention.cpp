#include "layers/attention/attention.h"

namespace meshloom::layers {

void Attention::Config::fields(FieldVisitor& v) {
  visit_sizes(v);
  v("mask", mask, {"The positions that a position may attend to.", means("mask of an attention")});
  visit_scores(v);
  v("distance_bias", distance_bias,
    {"A bias on scores that depends on the distance between positions; none: there is none."});
  visit_projections(v);
  v("positions", positions,
    {"How queries and keys are given their positions, such as RotaryPosition; none: they are not.",
     means("positions of queries")});
  visit_cache(v, cache);
}

std::unique_ptr<Module> Attention::Config::build(const Place& place) const {
  return std::make_unique<Attention>(*this, place);
}

Attention::Attention(const Config& config, const Place& place) : ProjectedKVAttention(config, place) {
  mask_ = checked_mask(config.mask, path());
  if (config.distance_bias) distance_bias_ = &child("distance_bias", config.distance_bias, {heads_});
  if (config.report_entropy && config.distance_bias) refuse_entropy();
  build_projections(config, dim_);
  if (config.positions) positions_ = &child("positions", config.positions, same(head_dim_, axis::kHeadDim));
  build_cache(config.cache);
}

kernels::FlashAttentionOptions Attention::options(Context& ctx) const {
  kernels::FlashAttentionOptions options = ProjectedKVAttention::options(ctx);
  mask_->apply(ctx, options);
  if (const Segments* segments = ctx.find<Segments>())
    options.q_segments = options.k_segments = segments->ids;
  if (distance_bias_) (*distance_bias_)(ctx, options);
  return options;
}

Tensor Attention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Tokens& tokens = ctx.get<Tokens>("Tokens");
  Tensor q = split_heads(ctx, (*q_proj_)(ctx, x), tokens, heads_);
  Tensor k = split_heads(ctx, (*k_proj_)(ctx, x), tokens, kv_heads_, axis::kKvHeads);
  const Tensor v = split_heads(ctx, (*v_proj_)(ctx, x), tokens, kv_heads_, axis::kKvHeads);
  if (positions_) {
    q = (*positions_)(ctx, q, "q_position");
    k = (*positions_)(ctx, k, "k_position");
  }
  if (const SharedKV* shared = ctx.find<SharedKV>()) *shared->latest = {k, v};
  return attend(ctx, q, k, v, options(ctx), "attention.context");
}

void add_attention_classes(ClassTable& classes) { classes.add<Attention::Config>(); }

}  // namespace meshloom::layers
