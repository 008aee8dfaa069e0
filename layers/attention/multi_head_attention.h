// What softmax attentions have in common: vectors in heads, how their scores are made, the projections to and
// from them.
#pragma once

#include <string>

#include "kernels/flash_attention/flash_attention.h"
#include "layers/core/inference_config.h"
#include "layers/core/linear.h"

namespace meshloom::layers {

// y, as many numbers as (B, S, heads, width), in that shape and labelled so.
Tensor split_heads(Context& ctx, Tensor y, const Tokens& tokens, std::int64_t heads,
                   const char* heads_axis = axis::kHeads);
// What an attention gives, (B, S, H, Dv), as (B * S, H * Dv); the first gets `tag`.
Tensor join_heads(Context& ctx, Tensor context, const std::string& tag = "attention.context");

// Queries from dims.input features, keys and values from as many or others.
class HeadedAttention : public Layer {
 public:
  struct Config : Layer::Config, ForTraining {
    Required<std::int64_t> num_heads;
    std::optional<std::int64_t> num_kv_heads;  // none = num_heads
    std::optional<std::int64_t> head_dim;      // none = dim / num_heads
    std::optional<double> scale;               // of the scores; none = 1 / sqrt(head_dim)
    std::optional<double> soft_cap;  // scores become soft_cap tanh(score / soft_cap); none = as they are
    double dropout = 0;              // of the probabilities, in training
    bool report_entropy =
        false;  // in training: summary "entropy", the mean over heads and queries of -sum p log p
    Child<Initializer> sink;  // of a learned score per head that stands for no position; none = without
    Child<Layer::Config> q_proj = Linear::Config{};
    Child<Layer::Config> k_proj = Linear::Config{};
    Child<Layer::Config> v_proj = Linear::Config{};
    Child<Layer::Config> o_proj = Linear::Config{};

   protected:
    // Their visits, in the order in which they stand: a class puts its own fields between them.
    void visit_sizes(FieldVisitor& v);
    void visit_scores(FieldVisitor& v);  // scale, soft_cap
    void visit_rest(FieldVisitor& v);
    // A copy that neither drops nor reports.
    template <typename C>
    static std::unique_ptr<layers::Config> only_used(C config) {
      config.dropout = 0;
      config.report_entropy = false;
      return std::make_unique<C>(std::move(config));
    }
  };

 protected:
  HeadedAttention(const Config& config, const Place& place);
  // Builds the projections, keys and values from `source` features.
  void build_projections(const Config& config, std::int64_t source);
  [[noreturn]] void refuse_entropy() const;

  // What the fields above say of scores.
  kernels::FlashAttentionOptions options(Context& ctx) const;
  // Attention as `options` say, in training with its entropy reported, and the projection back.
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v, const kernels::FlashAttentionOptions& options,
                const std::string& tag) const;

  std::int64_t dim_, heads_, kv_heads_, head_dim_;
  Layer *q_proj_, *k_proj_, *v_proj_, *o_proj_;

 private:
  void report_entropy(Context& ctx, Tensor q, Tensor k, kernels::FlashAttentionOptions options) const;

  double scale_;
  double soft_cap_;  // 0 = none
  double dropout_;
  bool report_entropy_;
  const Parameter* sink_ = nullptr;  // (heads)
};

}  // namespace meshloom::layers
