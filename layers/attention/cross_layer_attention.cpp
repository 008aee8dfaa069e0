#include "layers/attention/cross_layer_attention.h"

namespace meshloom::layers {

void CrossLayerAttention::Config::fields(FieldVisitor& v) {
  visit_num_heads(v);
  visit_head_dim(v);
  v("mask", mask, {"The positions that a position may attend to.", means("mask of an attention")});
  visit_scores(v);
  visit_q_proj(v);
  visit_o_proj(v);
  v("positions", positions,
    {"How queries are given their positions, the same way as the shared keys; none: they are not.",
     means("positions of queries")});
  visit_cache(v, cache);
}

std::unique_ptr<Module> CrossLayerAttention::Config::build(const Place& place) const {
  return std::make_unique<CrossLayerAttention>(*this, place);
}

CrossLayerAttention::CrossLayerAttention(const Config& config, const Place& place)
    : MultiHeadAttention(config, place) {
  mask_ = checked_mask(config.mask, path());
  build_q_proj(config);
  build_o_proj(config);
  if (config.positions) positions_ = &child("positions", config.positions, same(head_dim_, axis::kHeadDim));
  build_cache(config.cache);
}

Tensor CrossLayerAttention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Tokens& tokens = ctx.get<Tokens>("Tokens");
  const SharedKV& shared = ctx.get<SharedKV>("SharedKV, as the layers of a HeterogeneousStack are,");
  const Tensor k = shared.latest->keys, v = shared.latest->values;
  if (!k) fail("an Attention must come before it in the stack", "none");
  if (heads_ % k.dim(2) != 0 || k.dim(3) != head_dim_ || v.dim(3) != head_dim_)
    fail("num_heads must be a multiple of the shared key heads, " + std::to_string(k.dim(2)) +
             ", and head_dim must be theirs, " + std::to_string(k.dim(3)),
         std::to_string(heads_) + " and " + std::to_string(head_dim_));
  Tensor q = split_heads(ctx, (*q_proj_)(ctx, x), tokens, heads_);
  if (positions_) q = (*positions_)(ctx, q, "q_position");
  kernels::FlashAttentionOptions options = this->options();
  mask_->apply(ctx, options);
  if (const Segments* segments = ctx.find<Segments>())
    options.q_segments = options.k_segments = segments->ids;
  return attend(ctx, q, k, v, options, "attention.context");
}

void add_cross_layer_attention_classes(ClassTable& classes) { classes.add<CrossLayerAttention::Config>(); }

}  // namespace meshloom::layers
