#include "layers/attention/cross_layer_attention.h"

#include <cmath>

#include "kernels/program/sizes.h"
#include "layers/attention/head_dim.h"

namespace meshloom::layers {

void SharingAttention::Config::fields(FieldVisitor& v) {
  v("num_heads", num_heads,
    {"Heads of queries: as many as the shared keys have, or a multiple.", at_least(1),
     means("heads of queries")});
  v("head_dim", head_dim,
    {"Features of a head, as the shared keys have them; none: those of the model divided by num_heads.",
     at_least(1), means("features of a head")});
  v("mask", mask, {"Which positions a position attends to.", means("mask of an attention")});
  v("scale", scale,
    {"Factor on the scores before softmax; none: 1 / sqrt(head_dim).", means("factor on scores")});
  v("soft_cap", soft_cap,
    {"Scores become soft_cap tanh(score / soft_cap); none: they stay.", above(0), means("cap of scores")});
  v("q_proj", q_proj, {"Makes queries.", means("projection to queries")});
  v("o_proj", o_proj,
    {"Brings the heads' results back to the layer's features.",
     means("projection of an attention's result")});
  v("positions", positions,
    {"What tells queries their positions, as the shared keys were told theirs; none: nothing does.",
     means("positions of queries")});
}

std::unique_ptr<Module> SharingAttention::Config::build(const Place& place) const {
  return std::make_unique<SharingAttention>(*this, place);
}

SharingAttention::SharingAttention(const Config& config, const Place& place)
    : Layer(place),
      dim_(config.dims.input),
      heads_(config.num_heads),
      soft_cap_(config.soft_cap.value_or(0)) {
  if (heads_ <= 0) fail("num_heads is positive", std::to_string(heads_));
  head_dim_ = config.head_dim.value_or(dim_ / heads_);
  if (head_dim_ <= 0) fail("head_dim is positive", std::to_string(head_dim_));
  if (config.soft_cap && soft_cap_ <= 0) fail("soft_cap is positive", std::to_string(soft_cap_));
  mask_ = checked_mask(config.mask, path());
  scale_ = config.scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  provide(HeadDim{head_dim_});
  const std::int64_t q = kernels::product(path() + ", num_heads x head_dim", {heads_, head_dim_});
  q_proj_ = &child("q_proj", config.q_proj, {dim_, q, axis::kEmbed, axis::kHeads});
  o_proj_ = &child("o_proj", config.o_proj, {q, config.dims.output, axis::kHeads, axis::kEmbed});
  if (config.positions) positions_ = &child("positions", config.positions, same(head_dim_, axis::kHeadDim));
}

Tensor SharingAttention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Tokens& tokens = ctx.get<Tokens>("Tokens");
  const NewestKeys& newest = ctx.get<NewestKeys>("keys of a layer before, in a VariedStack");
  const Tensor k = newest.of->keys, v = newest.of->values;
  if (!k) fail("an Attention stands before it in the stack", "none");
  if (heads_ % k.dim(2) != 0 || k.dim(3) != head_dim_ || v.dim(3) != head_dim_)
    fail("has a multiple of the shared heads and their head_dim, " + std::to_string(k.dim(2)) + " and " +
             std::to_string(k.dim(3)),
         std::to_string(heads_) + " and " + std::to_string(head_dim_));
  Tensor q = split_heads(ctx, (*q_proj_)(ctx, x), tokens, heads_);
  if (positions_) q = (*positions_)(ctx, q, "q_position");
  kernels::FlashAttentionOptions options;
  options.scale = scale_;
  options.soft_cap = soft_cap_;
  mask_->apply(ctx, options);
  if (const Segments* segments = ctx.find<Segments>())
    options.q_segments = options.k_segments = segments->ids;
  return (*o_proj_)(ctx, join_heads(ctx, kernels::flash_attention(q, k, v, options)));
}

void add_sharing_attention_classes(ClassTable& classes) { classes.add<SharingAttention::Config>(); }

}  // namespace meshloom::layers
