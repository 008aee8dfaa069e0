#include "layers/attention/latent_attention.h"

#include <cmath>

#include "kernels/concat/concat.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/sizes.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void LatentAttention::Config::fields(FieldVisitor& v) {
  v("num_heads", num_heads, {"The number of heads.", at_least(1), means("heads of queries")});
  v("kv_rank", kv_rank,
    {"Features of the latent vector per token from which keys and values are projected.", at_least(1)});
  v("q_rank", q_rank,
    {"Features of the latent vector per token from which queries are projected; none: it is the input.",
     at_least(1)});
  v("head_dim", head_dim, {"Features of a head's queries and keys without positions.", at_least(1)});
  v("rotary_dim", rotary_dim,
    {"Features of a head's queries, and of the key that all heads share, with rotary positions.",
     at_least(1)});
  v("value_dim", value_dim, {"Features of a head's values; none: head_dim.", at_least(1)});
  v("mask", mask, {"The positions that a position may attend to.", means("mask of an attention")});
  v("scale", scale,
    {"Factor on the scores before softmax; none: 1 / sqrt(head_dim + rotary_dim).",
     means("factor on scores")});
  v("q_down", q_down, {"The projection to the latent vector of queries, used with a q_rank."});
  v("q_norm", q_norm, {"The normalisation of the latent vector of queries."});
  v("q_proj", q_proj,
    {"The projection to the part of queries without positions.", means("projection to queries")});
  v("q_rotary_proj", q_rotary_proj, {"The projection to the part of queries with rotary positions."});
  v("kv_down", kv_down, {"The projection to the latent vector of keys and values."});
  v("kv_norm", kv_norm, {"The normalisation of the latent vector of keys and values."});
  v("k_proj", k_proj,
    {"The projection from the latent vector to the part of keys without positions.",
     means("projection to keys")});
  v("k_rotary_proj", k_rotary_proj,
    {"The projection from the input to the key with rotary positions, which all heads share."});
  v("v_proj", v_proj, {"The projection from the latent vector to values.", means("projection to values")});
  v("o_proj", o_proj,
    {"The projection of the heads' results to the layer's features.",
     means("projection of an attention's result")});
  v("positions", positions,
    {"How the rotary parts of queries and keys are given their positions.", means("positions of queries")});
  v("cache", cache,
    {"What is kept of earlier tokens in inference, the keys and values of each head, or by a LatentCache the "
     "latent vectors; none: nothing, and each new token computes all again.",
     means("cache of an attention")});
}

std::unique_ptr<Module> LatentAttention::Config::build(const Place& place) const {
  return std::make_unique<LatentAttention>(*this, place);
}

LatentAttention::LatentAttention(const Config& config, const Place& place)
    : Layer(place),
      dim_(config.dims.input),
      heads_(config.num_heads),
      head_dim_(config.head_dim),
      rotary_dim_(config.rotary_dim),
      value_dim_(config.value_dim.value_or(config.head_dim)) {
  const std::int64_t rank = config.kv_rank, q_rank = config.q_rank.value_or(dim_);
  for (const auto& [name, size] : {std::pair{"num_heads", heads_}, std::pair{"kv_rank", rank},
                                   std::pair{"q_rank", q_rank}, std::pair{"head_dim", head_dim_},
                                   std::pair{"rotary_dim", rotary_dim_}, std::pair{"value_dim", value_dim_}})
    if (size <= 0) fail(std::string(name) + " must be positive", std::to_string(size));
  scale_ = config.scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_ + rotary_dim_)));
  mask_ = checked_mask(config.mask, path());
  provide(HeadDim{head_dim_});
  const Dims plain{dim_, 0, axis::kEmbed, ""};
  const auto to = [](Dims dims, std::int64_t output, const char* name) {
    dims.output = output;
    dims.output_axis = name;
    return dims;
  };
  Dims of_q = plain;
  if (config.q_rank) {
    q_down_ = &child("q_down", config.q_down, to(plain, q_rank, ""));
    q_norm_ = &child("q_norm", config.q_norm, same(q_rank, ""));
    of_q = {q_rank, 0, "", ""};
  }
  const auto of_heads = [&](std::int64_t dim) {
    return kernels::product(path() + ", num_heads x dimension", {heads_, dim});
  };
  const std::int64_t keys = of_heads(head_dim_), values = of_heads(value_dim_);
  q_proj_ = &child("q_proj", config.q_proj, to(of_q, keys, axis::kHeads));
  q_rotary_proj_ =
      &child("q_rotary_proj", config.q_rotary_proj, to(of_q, of_heads(rotary_dim_), axis::kHeads));
  kv_down_ = &child("kv_down", config.kv_down, to(plain, rank, ""));
  kv_norm_ = &child("kv_norm", config.kv_norm, same(rank, ""));
  const Dims of_c{rank, 0, "", ""};
  k_proj_ = &child("k_proj", config.k_proj, to(of_c, keys, axis::kHeads));
  k_rotary_proj_ = &child("k_rotary_proj", config.k_rotary_proj, to(plain, rotary_dim_, ""));
  v_proj_ = &child("v_proj", config.v_proj, to(of_c, values, axis::kHeads));
  o_proj_ = &child("o_proj", config.o_proj, {values, config.dims.output, axis::kHeads, axis::kEmbed});
  if (config.positions) positions_ = &child("positions", config.positions, same(rotary_dim_, axis::kHeadDim));
  if (config.cache) cache_ = &child("cache", config.cache, {});
}

Tensor LatentAttention::by_heads(Context& ctx, Tensor x, const Parameter& matrix, bool transposed) const {
  const Tensor weight = ctx.parameter(matrix);
  const Tensor of_heads = kernels::reshape(weight, {heads_, weight.dim(0) / heads_, weight.dim(1)});
  return kernels::permute(kernels::matmul(kernels::permute(x, {1, 0, 2}), of_heads, {.trans_b = transposed}),
                          {1, 0, 2});
}

Tensor LatentAttention::attend_to_latents(Context& ctx, Tensor q, Tensor r, Tensor c, Tensor s,
                                          const kernels::FlashAttentionOptions& options) {
  const LinearParameters of_keys = k_proj_->linear_parameters(), of_values = v_proj_->linear_parameters();
  if (!of_keys.weight || !of_values.weight)
    throw NoCache(display_path(ctx.path()),
                  "a cache of latent vectors needs a k_proj and a v_proj that are Linear, whose matrices "
                  "queries and results take in; PagedCache keeps the keys and values of any",
                  std::string("another layer as ") + (of_keys.weight ? "v_proj" : "k_proj"));
  const std::int64_t tokens = c.dim(0), rank = c.dim(1), width = rank + rotary_dim_;
  Tensor with_keys = by_heads(ctx, kernels::reshape(q, {tokens, heads_, head_dim_}), *of_keys.weight, false);
  with_keys = kernels::concat(kernels::reshape(with_keys, {tokens * heads_, rank}), r);
  const Tensor o = attention_to_latents(ctx, *cache_, kernels::reshape(with_keys, {1, tokens, heads_, width}),
                                        kernels::reshape(kernels::concat(c, s), {1, tokens, 1, width}),
                                        kernels::reshape(c, {1, tokens, 1, rank}), options);
  Tensor values = by_heads(ctx, kernels::reshape(o, {tokens, heads_, rank}), *of_values.weight, true);
  values = kernels::reshape(values, {tokens, heads_ * value_dim_});
  if (of_values.bias) values = kernels::add(values, ctx.parameter(*of_values.bias));
  const Tokens& sizes = ctx.get<Tokens>("Tokens");
  return split_heads(ctx, values, sizes, heads_);
}

Tensor LatentAttention::forward(Context& ctx, Tensor x) {
  check_features(x, dim_);
  const Tokens& tokens = ctx.get<Tokens>("Tokens");
  const auto [batch, sequence] = tokens;
  const auto rotary = [&, b = batch, s = sequence](Tensor y, std::int64_t heads, const char* as) {
    y = kernels::reshape(y, {b, s, heads, rotary_dim_});
    if (positions_) y = (*positions_)(ctx, y, as);
    return kernels::reshape(y, {b * s * heads, rotary_dim_});
  };
  const Tensor of_q = q_down_ ? (*q_norm_)(ctx, (*q_down_)(ctx, x)) : x;
  const Tensor latent = (*kv_norm_)(ctx, (*kv_down_)(ctx, x));
  const std::int64_t all = batch * sequence * heads_;
  const Tensor q = kernels::reshape((*q_proj_)(ctx, of_q), {all, head_dim_}),
               r = rotary((*q_rotary_proj_)(ctx, of_q), heads_, "q_position");
  kernels::FlashAttentionOptions options;
  options.scale = scale_;
  mask_->apply(ctx, options);
  if (const Segments* segments = ctx.find<Segments>())
    options.q_segments = options.k_segments = segments->ids;
  const auto s = [&] { return rotary((*k_rotary_proj_)(ctx, x), 1, "k_position"); };
  Tensor context;
  if (cache_ && cache_->keeps_latents() && ctx.find<InferenceStep>()) {
    context = attend_to_latents(ctx, q, r, latent, s(), options);
  } else {
    const Tensor whole_q = kernels::concat(q, r),
                 k = kernels::concat(kernels::reshape((*k_proj_)(ctx, latent), {all, head_dim_}), s());
    context =
        attention(ctx, cache_, split_heads(ctx, whole_q, tokens, heads_), split_heads(ctx, k, tokens, heads_),
                  split_heads(ctx, (*v_proj_)(ctx, latent), tokens, heads_), options);
  }
  return (*o_proj_)(ctx, join_heads(ctx, context));
}

void add_latent_attention_classes(ClassTable& classes) { classes.add<LatentAttention::Config>(); }

}  // namespace meshloom::layers
