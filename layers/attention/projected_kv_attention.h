// What the attentions that project their own keys and values have in common.
#pragma once

#include "layers/attention/multi_head_attention.h"
#include "layers/core/inference_config.h"

namespace meshloom::layers {

class ProjectedKVAttention : public MultiHeadAttention {
 public:
  struct Config : MultiHeadAttention::Config, TrainingOnly {
    std::optional<std::int64_t> num_kv_heads;  // none = num_heads
    double dropout = 0;                        // of the probabilities, in training
    // Whether training reports the summary "entropy", the mean over heads and queries of -sum p log p.
    bool report_entropy = false;
    Child<Initializer> sink;  // of a learned logit per head that belongs to no position; none = without
    Child<Layer::Config> k_proj = Linear::Config{};
    Child<Layer::Config> v_proj = Linear::Config{};

   protected:
    // A class puts its own fields between these.
    void visit_sizes(FieldVisitor& v);        // num_heads, num_kv_heads, head_dim
    void visit_projections(FieldVisitor& v);  // sink, dropout, report_entropy, then the projections
    // A copy without dropout and reports.
    template <typename C>
    static std::unique_ptr<layers::Config> inference_copy(C config) {
      config.dropout = 0;
      config.report_entropy = false;
      return std::make_unique<C>(std::move(config));
    }
  };

 protected:
  // Throws Error unless num_heads is a multiple of num_kv_heads.
  ProjectedKVAttention(const Config& config, const Place& place);
  // Builds the four projections. Keys and values are projected from `source` features.
  void build_projections(const Config& config, std::int64_t source);
  [[noreturn]] void refuse_entropy() const;

  // As the fields above set them.
  kernels::FlashAttentionOptions options(Context& ctx) const;
  // MultiHeadAttention::attend(), with the entropy reported in training.
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v, const kernels::FlashAttentionOptions& options,
                const std::string& tag) const;

  std::int64_t kv_heads_;
  Layer *k_proj_, *v_proj_;

 private:
  void report_entropy(Context& ctx, Tensor q, Tensor k, kernels::FlashAttentionOptions options) const;

  double dropout_;
  bool report_entropy_;
  const Parameter* sink_ = nullptr;  // (heads)
};

}  // namespace meshloom::layers
