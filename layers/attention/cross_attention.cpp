#include "layers/attention/cross_attention.h"

#include "layers/attention/mask.h"

namespace meshloom::layers {

void CrossAttention::Config::fields(FieldVisitor& v) {
  visit_sizes(v);
  visit_scores(v);
  visit_rest(v);
}

std::unique_ptr<Module> CrossAttention::Config::build(const Place& place) const {
  return std::make_unique<CrossAttention>(*this, place);
}

CrossAttention::CrossAttention(const Config& config, const Place& place) : HeadedAttention(config, place) {
  const MemoryDim* memory = inherited<MemoryDim>();
  if (!memory) fail("a CrossAttention stands in the decoder of a model with an encoder", "none");
  source_ = memory->size;
  build_projections(config, source_);
}

Tensor CrossAttention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Memory& memory = ctx.get<Memory>("Memory");
  check_features(memory.states, source_);
  // Their rows are the source's.
  const auto of_memory = [&](Layer* projection) {
    Context below = ctx.child(projection->name());
    below.put(memory.tokens);
    below.put(Segments{memory.segments});
    return split_heads(ctx, projection->forward(below, memory.states), memory.tokens, kv_heads_,
                       axis::kKvHeads);
  };
  const Tensor q = split_heads(ctx, (*q_proj_)(ctx, x), ctx.get<Tokens>("Tokens"), heads_);
  const Tensor k = of_memory(k_proj_), v = of_memory(v_proj_);
  kernels::FlashAttentionOptions options = this->options(ctx);
  options.causal = false;
  options.q_segments = ctx.get<Segments>("Segments").ids;
  options.k_segments = memory.segments;
  return attend(ctx, q, k, v, options, "cross_attention.context");
}

void add_cross_attention_classes(ClassTable& classes) { classes.add<CrossAttention::Config>(); }

}  // namespace meshloom::layers
