// Cross-attention: the queries are those of a decoder, the keys and values are made of an encoder's output (Vaswani et
// al., 2017).
#pragma once

#include "layers/attention/projected_kv_attention.h"
#include "layers/cache/source_cache.h"

namespace meshloom::layers {

// Call information that an encoder-decoder model puts for its decoder.
struct EncoderOutput {
  Tensor hidden_states;  // (B * T, EncoderOutputDim)
  Tokens tokens;         // B and T
  Tensor segments;  // (B, T) i32: the document of its row that a position belongs to, from 1; 0 = padding
};
// Provided by such a model to its decoder.
struct EncoderOutputDim {
  std::int64_t size;  // features of the hidden states
};

// In an InferenceStep the keys and values are those that a pass over the source with a SourceStep has kept in the cache; no encoder
// runs.
// A query attends to all positions of its own document (Segments). If its document has no source, the result before
// o_proj is zeros.
class CrossAttention : public ProjectedKVAttention {
 public:
  struct Config : ConfigOf<Config, ProjectedKVAttention::Config> {
    static constexpr std::string_view kName = "CrossAttention";
    static constexpr std::string_view kAbout =
        "Attention of a decoder to the output of an encoder (Vaswani et al., 2017).";
    Child<CrossAttentionCache::Config> cache = SourceCache::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return inference_copy(*this); }
  };

  // Throws Error unless an ancestor provides EncoderOutputDim.
  CrossAttention(const Config& config, const Place& place);
  // x (B * S, dim). The context must have Tokens, Segments and EncoderOutput, or SourceStep in an InferenceStep.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t source_;  // features of the encoder's output
  CrossAttentionCache* cache_ = nullptr;
};

}  // namespace meshloom::layers
