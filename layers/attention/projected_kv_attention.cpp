#include "layers/attention/projected_kv_attention.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/program/sizes.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/core/dropout.h"

namespace meshloom::layers {

void ProjectedKVAttention::Config::visit_sizes(FieldVisitor& v) {
  visit_num_heads(v);
  v("num_kv_heads", num_kv_heads,
    {"The number of key and value heads, a divisor of num_heads; none: num_heads.", at_least(1)});
  visit_head_dim(v);
}

void ProjectedKVAttention::Config::visit_projections(FieldVisitor& v) {
  v("sink", sink,
    {"The initial values of a learned logit per head that takes part in the softmax and belongs to no "
     "position; "
     "none: there is none."});
  v("dropout", dropout, {"The dropout rate of the attention probabilities, in training.", below_one()});
  v("report_entropy", report_entropy,
    {"Whether training reports the mean entropy of the probabilities, in nats, as the summary 'entropy'."});
  visit_q_proj(v);
  v("k_proj", k_proj, {"The projection to keys.", means("projection to keys")});
  v("v_proj", v_proj, {"The projection to values.", means("projection to values")});
  visit_o_proj(v);
}

ProjectedKVAttention::ProjectedKVAttention(const Config& config, const Place& place)
    : MultiHeadAttention(config, place),
      kv_heads_(config.num_kv_heads.value_or(heads_)),
      dropout_(checked_dropout_rate(path(), config.dropout)),
      report_entropy_(config.report_entropy) {
  if (kv_heads_ <= 0 || heads_ % kv_heads_ != 0)
    fail("num_heads must be a multiple of num_kv_heads",
         std::to_string(heads_) + " and " + std::to_string(kv_heads_));
  if (config.sink) sink_ = &parameter("sink", {heads_}, {axis::kHeads}, config.sink);
  if (report_entropy_ && (soft_cap_ > 0 || sink_)) refuse_entropy();
}

void ProjectedKVAttention::build_projections(const Config& config, std::int64_t source) {
  const std::int64_t kv = kernels::product(path() + ", num_kv_heads x head_dim", {kv_heads_, head_dim_});
  build_q_proj(config);
  k_proj_ = &child("k_proj", config.k_proj, {source, kv, axis::kEmbed, axis::kKvHeads});
  v_proj_ = &child("v_proj", config.v_proj, {source, kv, axis::kEmbed, axis::kKvHeads});
  build_o_proj(config);
}

void ProjectedKVAttention::refuse_entropy() const {
  fail("report_entropy must be used without soft_cap, distance_bias and sink", "one of them");
}

kernels::FlashAttentionOptions ProjectedKVAttention::options(Context& ctx) const {
  kernels::FlashAttentionOptions options = MultiHeadAttention::options();
  if (sink_) options.sink = ctx.parameter(*sink_);
  if (dropout_ > 0 && ctx.training()) {
    options.dropout = dropout_;
    options.key = ctx.child("probabilities").key().value;
    options.rng_state = ctx.rng_state();
  }
  return options;
}

// With scores s = scale q.k the entropy of a query is lse - sum p s, and sum p s = scale q . (sum p k), where sum p k is
// attention whose values are the keys.
void ProjectedKVAttention::report_entropy(Context& ctx, Tensor q, Tensor k,
                                          kernels::FlashAttentionOptions options) const {
  options.dropout = 0;
  const auto [mean_key, lse] = kernels::flash_attention_with_lse(q, k, k, options);
  // The lse of a query that attends to nothing is -infinity; it counts as 0.
  constexpr double kMinFinite = -1e30;
  const auto [first, second] = kernels::inputs<2>();
  const Tensor finite = kernels::elementwise({lse}, select(first > kMinFinite, first, 0));
  const Tensor scores = kernels::reduce_sum(kernels::mul(q, mean_key), 0),
               logs = kernels::reduce_sum(finite, 0);
  const auto queries = static_cast<double>(lse.type().elements());
  ctx.summary("entropy", kernels::elementwise({logs, scores}, (first - second * scale_) / queries));
}

Tensor ProjectedKVAttention::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                                    const kernels::FlashAttentionOptions& options,
                                    const std::string& tag) const {
  if (report_entropy_ && ctx.training()) report_entropy(ctx, q, k, options);
  return MultiHeadAttention::attend(ctx, q, k, v, options, tag);
}

}  // namespace meshloom::layers
