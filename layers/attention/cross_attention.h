// Attention of a decoder to what an encoder made of a source (Vaswani et al., 2017).
#pragma once

#include "layers/attention/multi_head_attention.h"

namespace meshloom::layers {

// Call information that a model with an encoder gives to its decoder.
struct Memory {
  Tensor states;    // (B * T, MemoryDim)
  Tokens tokens;    // B and T
  Tensor segments;  // (B, T) i32: which document of its row a position belongs to, from 1; 0 = padding
};
// Provided by such a model before it builds its decoder: features of the states.
struct MemoryDim {
  std::int64_t size;
};

// Queries from its input, keys and values from Memory. A query sees the positions of its own document
// (Segments), in any order; one of a document without a source gets zeros before o_proj.
class CrossAttention : public HeadedAttention {
 public:
  struct Config : ConfigOf<Config, HeadedAttention::Config> {
    static constexpr std::string_view kName = "CrossAttention";
    static constexpr std::string_view kAbout =
        "Attention of a decoder to what an encoder made of a source (Vaswani et al., 2017).";

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return only_used(*this); }
  };

  // Stands below a module that provides MemoryDim.
  CrossAttention(const Config& config, const Place& place);
  // x (B * S, dim); needs Tokens, Segments and Memory.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t source_;
};

}  // namespace meshloom::layers
