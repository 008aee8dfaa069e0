#include "layers/attention/cross_attention.h"

#include "layers/attention/mask.h"
#include "layers/cache/kv_cache.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void CrossAttention::Config::fields(FieldVisitor& v) {
  visit_sizes(v);
  visit_scores(v);
  visit_projections(v);
  v("cache", cache,
    {"What is kept of a source in inference; none: nothing, and each new token computes all again."});
}

std::unique_ptr<Module> CrossAttention::Config::build(const Place& place) const {
  return std::make_unique<CrossAttention>(*this, place);
}

CrossAttention::CrossAttention(const Config& config, const Place& place)
    : ProjectedKVAttention(config, place) {
  const EncoderOutputDim* encoder = inherited<EncoderOutputDim>();
  if (!encoder) fail("a CrossAttention must be in the decoder of a model with an encoder", "no encoder");
  source_ = encoder->size;
  build_projections(config, source_);
  if (config.cache) cache_ = &child("cache", config.cache, {});
}

Tensor CrossAttention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Tensor q = split_heads(ctx, (*q_proj_)(ctx, x), ctx.get<Tokens>("Tokens"), heads_);
  if (ctx.find<InferenceStep>()) {
    if (!cache_ || !ctx.find<SourceStep>())
      throw NoCache(display_path(ctx.path()), "the keys and values of a source cannot be kept for it",
                    cache_ ? "no place for them" : "no cache");
    Context below = ctx.child(cache_->name());
    const Tensor o = cache_->attend(below, q, kv_heads_, head_dim_, this->options(ctx));
    return (*o_proj_)(ctx, join_heads(ctx, o, "cross_attention.context"));
  }
  const EncoderOutput& encoder = ctx.get<EncoderOutput>("EncoderOutput");
  check_features(encoder.hidden_states, source_);
  // The rows of keys and values are those of the source.
  const auto from_encoder = [&](Layer* projection) {
    Context below = ctx.child(projection->name());
    below.put(encoder.tokens);
    below.put(Segments{encoder.segments});
    return split_heads(ctx, projection->forward(below, encoder.hidden_states), encoder.tokens, kv_heads_,
                       axis::kKvHeads);
  };
  const Tensor k = from_encoder(k_proj_), v = from_encoder(v_proj_);
  if (cache_ && ctx.find<SourceStep>()) {
    Context below = ctx.child(cache_->name());
    cache_->keep(below, k, v);
  }
  kernels::FlashAttentionOptions options = this->options(ctx);
  options.causal = false;
  options.q_segments = ctx.get<Segments>("Segments").ids;
  options.k_segments = encoder.segments;
  return attend(ctx, q, k, v, options, "cross_attention.context");
}

void add_cross_attention_classes(ClassTable& classes) { classes.add<CrossAttention::Config>(); }

}  // namespace meshloom::layers
