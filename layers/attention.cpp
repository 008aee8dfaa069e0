#include "layers/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/dropout.h"
#include "layers/head_dim.h"

namespace meshloom::layers {

void Attention::Config::fields(FieldVisitor& v) {
  v("num_heads", num_heads);
  v("num_kv_heads", num_kv_heads);
  v("head_dim", head_dim);
  v("mask", mask);
  v("scale", scale);
  v("soft_cap", soft_cap);
  v("distance_bias", distance_bias);
  v("sink", sink);
  v("dropout", dropout);
  v("report_entropy", report_entropy);
  v("q_proj", q_proj);
  v("k_proj", k_proj);
  v("v_proj", v_proj);
  v("o_proj", o_proj);
  v("positions", positions);
}

std::unique_ptr<Module> Attention::Config::build(const Place& place) const {
  return std::make_unique<Attention>(*this, place);
}

std::unique_ptr<layers::Config> Attention::Config::in_use() const {
  auto plain = std::make_unique<Config>(*this);
  plain->dropout = 0;
  plain->report_entropy = false;
  return plain;
}

Attention::Attention(const Config& config, const Place& place)
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
  mask_ = checked_mask(config.mask, path());
  if (config.distance_bias) distance_bias_ = &child("distance_bias", config.distance_bias, {heads_});
  if (config.sink) sink_ = &parameter("sink", {heads_}, {axis::kHeads}, config.sink);
  if (report_entropy_ && (soft_cap_ > 0 || config.distance_bias || config.sink))
    fail("report_entropy goes without soft_cap, distance_bias and sink", "one of them");
  provide(HeadDim{head_dim_});
  const std::int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  q_proj_ = &child("q_proj", config.q_proj, {dim_, q, axis::kEmbed, axis::kHeads});
  k_proj_ = &child("k_proj", config.k_proj, {dim_, kv, axis::kEmbed, axis::kKvHeads});
  v_proj_ = &child("v_proj", config.v_proj, {dim_, kv, axis::kEmbed, axis::kKvHeads});
  o_proj_ = &child("o_proj", config.o_proj, {q, config.dims.output, axis::kHeads, axis::kEmbed});
  if (config.positions) positions_ = &child("positions", config.positions, same(head_dim_, axis::kHeadDim));
}

kernels::FlashAttentionOptions Attention::options(Context& ctx) const {
  kernels::FlashAttentionOptions options;
  options.scale = scale_;
  options.soft_cap = soft_cap_;
  mask_->apply(ctx, options);
  if (const Segments* segments = ctx.find<Segments>())
    options.q_segments = options.k_segments = segments->ids;
  if (sink_) options.sink = ctx.parameter(*sink_);
  if (dropout_ > 0 && ctx.training()) {
    options.dropout = dropout_;
    options.key = ctx.child("probabilities").key().value;
    options.draw = ctx.draw();
  }
  if (distance_bias_) (*distance_bias_)(ctx, options);
  return options;
}

// With scores s = scale q.k the entropy of a query is lse - sum p s, and sum p s = scale q . (sum p k): attention whose
// values are the keys.
void Attention::report_entropy(Context& ctx, Tensor q, Tensor k, kernels::FlashAttentionOptions options) const {
  options.dropout = 0;
  const auto [mean_key, lse] = kernels::flash_attention_with_lse(q, k, k, options);
  const Tensor scores = kernels::reduce_sum(kernels::mul(q, mean_key), 0), logs = kernels::reduce_sum(lse, 0);
  ctx.summary("entropy", kernels::elementwise({logs, scores}, fmt::format("div(sub(x0,mul(x1,{})),{})", scale_,
                                                                          lse.type().elements())));
}

Tensor Attention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const auto [batch, sequence] = ctx.get<Tokens>("Tokens");
  const auto split = [&, b = batch, s = sequence](Tensor y, std::int64_t heads, const char* heads_axis) {
    y = kernels::reshape(y, {b, s, heads, head_dim_});
    ctx.builder().axes(y, {axis::kBatch, axis::kSeq, heads_axis, axis::kHeadDim});
    return y;
  };
  Tensor q = split((*q_proj_)(ctx, x), heads_, axis::kHeads);
  Tensor k = split((*k_proj_)(ctx, x), kv_heads_, axis::kKvHeads);
  const Tensor v = split((*v_proj_)(ctx, x), kv_heads_, axis::kKvHeads);
  if (positions_) {
    q = (*positions_)(ctx, q, "q_position");
    k = (*positions_)(ctx, k, "k_position");
  }
  if (const NewestKeys* newest = ctx.find<NewestKeys>()) *newest->of = {k, v};
  const kernels::FlashAttentionOptions options = this->options(ctx);
  if (report_entropy_ && ctx.training()) report_entropy(ctx, q, k, options);
  Tensor context = kernels::flash_attention(q, k, v, options);
  ctx.mark(context, "attention.context", {axis::kBatch, axis::kSeq, axis::kHeads, axis::kHeadDim});
  context = kernels::reshape(context, {batch * sequence, heads_ * head_dim_});
  ctx.builder().axes(context, {axis::kTokens, axis::kHeads});
  return (*o_proj_)(ctx, context);
}

void add_attention_classes(ClassTable& classes) { classes.add<Attention::Config>(); }

}  // namespace meshloom::layers
