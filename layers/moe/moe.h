// Mixture of experts (Shazeer et al., 2017): each token goes through a few of many feed-forward layers, and the result
// is their weighted sum. Nothing is padded: tokens are sorted by expert, and an expert processes as many as it was
// given.
#pragma once

#include "layers/feed_forward/feed_forward.h"
#include "layers/moe/top_k_gating.h"

namespace meshloom::layers {

// It can take the place of a FeedForward, whose fields describe each of its experts.
class MoE : public Layer {
 public:
  struct Config : ConfigOf<Config, FeedForward::Config> {
    static constexpr std::string_view kName = "MoE";
    static constexpr std::string_view kAbout =
        "Mixture of experts: each token goes through a few of many feed-forward layers (Shazeer et al., "
        "2017).";
    Required<std::int64_t> num_experts;
    Child<Gating::Config> gating = TopK::Config{};
    Child<Layer::Config> shared;  // for every token, added to the sum of its experts; none = there is none

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  MoE(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Dims dims_;
  std::int64_t num_experts_;
  Gating* gating_;
  Layer *shared_ = nullptr, *experts_;
};

}  // namespace meshloom::layers
