// What all softmax attentions over heads have in common: the queries, how scores are computed, and the projection of the
// heads' results.
#pragma once

#include <string>

#include "kernels/flash_attention/flash_attention.h"
#include "layers/cache/paged_cache.h"
#include "layers/core/linear.h"

namespace meshloom::layers {

// y, which has B x S x heads x width elements, as (B, S, heads, width) with these logical axes.
Tensor split_heads(Context& ctx, Tensor y, const Tokens& tokens, std::int64_t heads,
                   const char* heads_axis = axis::kHeads);
// The result of an attention (B, S, H, D), which gets `tag`, as (B * S, H * D).
Tensor join_heads(Context& ctx, Tensor context, const std::string& tag = "attention.context");

// Provided by an attention to its projections.
struct HeadDim {
  std::int64_t size;  // features of one head
};

class MultiHeadAttention : public Layer {
 public:
  struct Config : Layer::Config {
    Required<std::int64_t> num_heads;
    std::optional<std::int64_t> head_dim;  // none = dim / num_heads
    std::optional<double> scale;           // factor on the scores; none = 1 / sqrt(head_dim)
    std::optional<double>
        soft_cap;  // scores become soft_cap tanh(score / soft_cap); none = they do not change
    Child<Layer::Config> q_proj = Linear::Config{};
    Child<Layer::Config> o_proj = Linear::Config{};

   protected:
    // A class lists its fields in an order of its own, so they are visited in parts.
    void visit_num_heads(FieldVisitor& v);
    void visit_head_dim(FieldVisitor& v);
    void visit_scores(FieldVisitor& v);  // scale, soft_cap
    void visit_q_proj(FieldVisitor& v);
    void visit_o_proj(FieldVisitor& v);
    static void visit_cache(FieldVisitor& v, Child<KVCache::Config>& cache);
  };

 protected:
  // Throws Error unless the sizes are positive and, without a head_dim, num_heads divides dims.input.
  MultiHeadAttention(const Config& config, const Place& place);
  void build_q_proj(const Config& config);
  void build_o_proj(const Config& config);
  // Without it the attention cannot run in an InferenceStep.
  void build_cache(const Child<KVCache::Config>& cache);

  // With scale and soft_cap set.
  kernels::FlashAttentionOptions options() const;
  // The attention, whose result gets `tag`, and the projection of its result.
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v, const kernels::FlashAttentionOptions& options,
                const std::string& tag) const;

  std::int64_t dim_, heads_, head_dim_;
  double scale_;
  double soft_cap_;  // 0 = none
  Layer *q_proj_, *o_proj_;
  KVCache* cache_ = nullptr;

 private:
  std::int64_t features() const;  // num_heads x head_dim
};

}  // namespace meshloom::layers
