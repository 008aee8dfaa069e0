#include "layers/attention/multi_head_attention.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/program/sizes.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/attention/head_dim.h"
#include "layers/core/dropout.h"

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

void HeadedAttention::Config::visit_sizes(FieldVisitor& v) {
  v("num_heads", num_heads, {"Heads of queries.", at_least(1), means("heads of queries")});
  v("num_kv_heads", num_kv_heads,
    {"Heads of keys and values, a divisor of num_heads; none: num_heads.", at_least(1)});
  v("head_dim", head_dim,
    {"Features of a head; none: those of the model divided by num_heads.", at_least(1),
     means("features of a head")});
}

void HeadedAttention::Config::visit_scores(FieldVisitor& v) {
  v("scale", scale,
    {"Factor on the scores before softmax; none: 1 / sqrt(head_dim).", means("factor on scores")});
  v("soft_cap", soft_cap,
    {"Scores become soft_cap tanh(score / soft_cap); none: they stay.", above(0), means("cap of scores")});
}

void HeadedAttention::Config::visit_rest(FieldVisitor& v) {
  v("sink", sink,
    {"How a learned score per head starts that takes part in the softmax and stands for no position; none: "
     "without."});
  v("dropout", dropout, {"The part of the probabilities that become 0 in training.", below_one()});
  v("report_entropy", report_entropy,
    {"Whether training reports the mean entropy of the probabilities, in nats, as the summary 'entropy'."});
  v("q_proj", q_proj, {"Makes queries.", means("projection to queries")});
  v("k_proj", k_proj, {"Makes keys.", means("projection to keys")});
  v("v_proj", v_proj, {"Makes values.", means("projection to values")});
  v("o_proj", o_proj,
    {"Brings the heads' results back to the layer's features.",
     means("projection of an attention's result")});
}

HeadedAttention::HeadedAttention(const Config& config, const Place& place)
    : Layer(place),
      dim_(config.dims.input),
      heads_(config.num_heads),
      kv_heads_(config.num_kv_heads.value_or(heads_)),
      soft_cap_(config.soft_cap.value_or(0)),
      dropout_(dropout_rate(path(), config.dropout)),
      report_entropy_(config.report_entropy) {
  if (heads_ <= 0) fail("num_heads is positive", std::to_string(heads_));
  if (kv_heads_ <= 0 || heads_ % kv_heads_ != 0)
    fail("num_heads is a multiple of num_kv_heads",
         std::to_string(heads_) + " and " + std::to_string(kv_heads_));
  if (!config.head_dim && dim_ % heads_ != 0)
    fail("without a head_dim, the model's dimension is a multiple of num_heads",
         std::to_string(dim_) + " and " + std::to_string(heads_));
  head_dim_ = config.head_dim.value_or(dim_ / heads_);
  if (head_dim_ <= 0) fail("head_dim is positive", std::to_string(head_dim_));
  scale_ = config.scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  if (config.soft_cap && soft_cap_ <= 0) fail("soft_cap is positive", std::to_string(soft_cap_));
  if (config.sink) sink_ = &parameter("sink", {heads_}, {axis::kHeads}, config.sink);
  if (report_entropy_ && (soft_cap_ > 0 || sink_)) refuse_entropy();
  provide(HeadDim{head_dim_});
}

void HeadedAttention::build_projections(const Config& config, std::int64_t source) {
  const std::int64_t q = kernels::product(path() + ", num_heads x head_dim", {heads_, head_dim_});
  const std::int64_t kv = kernels::product(path() + ", num_kv_heads x head_dim", {kv_heads_, head_dim_});
  q_proj_ = &child("q_proj", config.q_proj, {dim_, q, axis::kEmbed, axis::kHeads});
  k_proj_ = &child("k_proj", config.k_proj, {source, kv, axis::kEmbed, axis::kKvHeads});
  v_proj_ = &child("v_proj", config.v_proj, {source, kv, axis::kEmbed, axis::kKvHeads});
  o_proj_ = &child("o_proj", config.o_proj, {q, config.dims.output, axis::kHeads, axis::kEmbed});
}

void HeadedAttention::refuse_entropy() const {
  fail("report_entropy goes without soft_cap, distance_bias and sink", "one of them");
}

kernels::FlashAttentionOptions HeadedAttention::options(Context& ctx) const {
  kernels::FlashAttentionOptions options;
  options.scale = scale_;
  options.soft_cap = soft_cap_;
  if (sink_) options.sink = ctx.parameter(*sink_);
  if (dropout_ > 0 && ctx.training()) {
    options.dropout = dropout_;
    options.key = ctx.child("probabilities").key().value;
    options.rng_state = ctx.rng_state();
  }
  return options;
}

// With scores s = scale q.k the entropy of a query is lse - sum p s, and sum p s = scale q . (sum p k):
// attention whose values are the keys.
void HeadedAttention::report_entropy(Context& ctx, Tensor q, Tensor k,
                                     kernels::FlashAttentionOptions options) const {
  options.dropout = 0;
  const auto [mean_key, lse] = kernels::flash_attention_with_lse(q, k, k, options);
  // One that sees nothing has none.
  const Tensor finite = kernels::elementwise({lse}, "select(gt(x0,-1e30),x0,0)");
  const Tensor scores = kernels::reduce_sum(kernels::mul(q, mean_key), 0),
               logs = kernels::reduce_sum(finite, 0);
  ctx.summary("entropy", kernels::elementwise({logs, scores}, fmt::format("div(sub(x0,mul(x1,{})),{})",
                                                                          scale_, lse.type().elements())));
}

Tensor HeadedAttention::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                               const kernels::FlashAttentionOptions& options, const std::string& tag) const {
  if (report_entropy_ && ctx.training()) report_entropy(ctx, q, k, options);
  return (*o_proj_)(ctx, join_heads(ctx, kernels::flash_attention(q, k, v, options), tag));
}

}  // namespace meshloom::layers
