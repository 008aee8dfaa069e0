// Multi-head latent attention (MLA): keys and values are projected from one small vector per token (DeepSeek-AI, 2024).
#pragma once

#include <memory>

#include "layers/attention/mask.h"
#include "layers/attention/multi_head_attention.h"
#include "layers/cache/paged_cache.h"
#include "layers/norm/norm.h"
#include "layers/position/position.h"

namespace meshloom::layers {

// The latent vector c = norm(W_c x) has kv_rank features. A head has queries [q, r], keys [k, s] and values v:
//   q, r  projected from x, or from norm(W_q x) if there is a q_rank
//   k, v  projected from c
//   s     projected from x, and shared by all heads
// Rotary positions apply to r and s only. The scores are scale (q k + r s).
//
// In an InferenceStep a cache may keep c and s alone (LatentCache). As k = W_k c and v = W_v c, queries then take W_k in and results
// W_v: the scores are scale ((q W_k) c + r s), and the result is W_v of what attention makes of the c. A bias of k_proj adds the same
// number to all scores of a query, which softmax does not see; one of v_proj is added to results, whose weights add up to 1.
class LatentAttention : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "LatentAttention";
    static constexpr std::string_view kAbout =
        "Multi-head latent attention: keys and values come from one small vector per token (DeepSeek-AI, "
        "2024).";
    Required<std::int64_t> num_heads;
    Required<std::int64_t> kv_rank;
    std::optional<std::int64_t> q_rank;     // none = queries are projected from x
    std::int64_t head_dim = 128;            // of q and k
    std::int64_t rotary_dim = 64;           // of r and s
    std::optional<std::int64_t> value_dim;  // none = head_dim
    Child<Mask> mask = Causal{};
    std::optional<double> scale;                     // none = 1 / sqrt(head_dim + rotary_dim)
    Child<Layer::Config> q_down = Linear::Config{};  // used with a q_rank
    Child<Norm::Config> q_norm = RMSNorm::Config{};
    Child<Layer::Config> q_proj = Linear::Config{};
    Child<Layer::Config> q_rotary_proj = Linear::Config{};
    Child<Layer::Config> kv_down = Linear::Config{};
    Child<Norm::Config> kv_norm = RMSNorm::Config{};
    Child<Layer::Config> k_proj = Linear::Config{};
    Child<Layer::Config> k_rotary_proj = Linear::Config{};
    Child<Layer::Config> v_proj = Linear::Config{};
    Child<Layer::Config> o_proj = Linear::Config{};
    Child<QueryKeyPosition::Config> positions = RotaryPosition::Config{};
    Child<KVCache::Config> cache = PagedCache::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LatentAttention(const Config& config, const Place& place);
  // x (B * S, dim). The context must have Tokens and what the mask needs. With Segments, a position attends only to its
  // own document.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  // A head's features become others by its rows of a matrix (heads x features, kv_rank) of the projections from c, or the transposed ones:
  // x (N, heads, ...) -> (N, heads, ...).
  Tensor by_heads(Context& ctx, Tensor x, const Parameter& matrix, bool transposed) const;
  // The result (B, S, heads, value_dim) from q (B * S * heads, head_dim), r, c and s.
  Tensor attend_to_latents(Context& ctx, Tensor q, Tensor r, Tensor c, Tensor s,
                           const kernels::FlashAttentionOptions& options);

  std::int64_t dim_, heads_, head_dim_, rotary_dim_, value_dim_;
  double scale_;
  std::unique_ptr<const Mask> mask_;
  Layer *q_down_ = nullptr, *q_proj_, *q_rotary_proj_, *kv_down_, *k_proj_, *k_rotary_proj_, *v_proj_,
        *o_proj_;
  Norm *q_norm_ = nullptr, *kv_norm_;
  QueryKeyPosition* positions_ = nullptr;
  KVCache* cache_ = nullptr;
};

}  // namespace meshloom::layers
