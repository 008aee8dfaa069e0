#include "layers/attention/multi_head_attention.h"

#include <cmath>

#include "kernels/layout/layout.h"
#include "kernels/program/sizes.h"

namespace meshloom::layers {

Tensor split_heads(Context& ctx, Tensor y, const Tokens& tokens, std::int64_t heads, const char* heads_axis) {
  const auto [batch, sequence] = tokens;
  y = kernels::reshape(y, {batch, sequence, heads, y.type().elements() / (batch * sequence * heads)});
  ctx.builder().axes(y, {axis::kBatch, axis::kSeq, heads_axis, axis::kHeadDim});
  return y;
}

Tensor join_heads(Context& ctx, Tensor context, const std::string& tag) {
  ctx.mark(context, tag, {axis::kBatch, axis::kSeq, axis::kHeads, axis::kHeadDim});
  context = kernels::reshape(context, {context.dim(0) * context.dim(1), context.dim(2) * context.dim(3)});
  ctx.builder().axes(context, {axis::kTokens, axis::kHeads});
  return context;
}

void MultiHeadAttention::Config::visit_num_heads(FieldVisitor& v) {
  v("num_heads", num_heads, {"The number of query heads.", at_least(1), means("heads of queries")});
}

void MultiHeadAttention::Config::visit_head_dim(FieldVisitor& v) {
  v("head_dim", head_dim,
    {"Features of a head; none: those of the model divided by num_heads.", at_least(1),
     means("features of a head")});
}

void MultiHeadAttention::Config::visit_scores(FieldVisitor& v) {
  v("scale", scale,
    {"Factor on the scores before softmax; none: 1 / sqrt(head_dim).", means("factor on scores")});
  v("soft_cap", soft_cap,
    {"Scores become soft_cap tanh(score / soft_cap); none: they do not change.", above(0),
     means("cap of scores")});
}

void MultiHeadAttention::Config::visit_q_proj(FieldVisitor& v) {
  v("q_proj", q_proj, {"The projection to queries.", means("projection to queries")});
}

void MultiHeadAttention::Config::visit_o_proj(FieldVisitor& v) {
  v("o_proj", o_proj,
    {"The projection of the heads' results to the layer's features.",
     means("projection of an attention's result")});
}

void MultiHeadAttention::Config::visit_cache(FieldVisitor& v, Child<KVCache::Config>& cache) {
  v("cache", cache,
    {"What is kept of earlier tokens in inference; none: nothing, and each new token computes all again.",
     means("cache of an attention")});
}

MultiHeadAttention::MultiHeadAttention(const Config& config, const Place& place)
    : Layer(place),
      dim_(config.dims.input),
      heads_(config.num_heads),
      soft_cap_(config.soft_cap.value_or(0)) {
  if (heads_ <= 0) fail("num_heads must be positive", std::to_string(heads_));
  if (!config.head_dim && dim_ % heads_ != 0)
    fail("without a head_dim, the model's dimension must be a multiple of num_heads",
         std::to_string(dim_) + " and " + std::to_string(heads_));
  head_dim_ = config.head_dim.value_or(dim_ / heads_);
  if (head_dim_ <= 0) fail("head_dim must be positive", std::to_string(head_dim_));
  scale_ = config.scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  if (config.soft_cap && soft_cap_ <= 0) fail("soft_cap must be positive", std::to_string(soft_cap_));
  provide(HeadDim{head_dim_});
}

std::int64_t MultiHeadAttention::features() const {
  return kernels::product(path() + ", num_heads x head_dim", {heads_, head_dim_});
}

void MultiHeadAttention::build_q_proj(const Config& config) {
  q_proj_ = &child("q_proj", config.q_proj, {dim_, features(), axis::kEmbed, axis::kHeads});
}

void MultiHeadAttention::build_o_proj(const Config& config) {
  o_proj_ = &child("o_proj", config.o_proj, {features(), config.dims.output, axis::kHeads, axis::kEmbed});
}

void MultiHeadAttention::build_cache(const Child<KVCache::Config>& cache) {
  if (cache) cache_ = &child("cache", cache, {});
}

kernels::FlashAttentionOptions MultiHeadAttention::options() const {
  kernels::FlashAttentionOptions options;
  options.scale = scale_;
  options.soft_cap = soft_cap_;
  return options;
}

Tensor MultiHeadAttention::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                                  const kernels::FlashAttentionOptions& options,
                                  const std::string& tag) const {
  return (*o_proj_)(ctx, join_heads(ctx, attention(ctx, cache_, q, k, v, options), tag));
}

}  // namespace meshloom::layers
