// The feed-forward layer: down(act(up x)), or with a gate down(act(gate x) * up x) (Shazeer, 2020).
#pragma once

#include "layers/core/linear.h"
#include "layers/feed_forward/activation.h"

namespace meshloom::layers {

class FeedForward : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "FeedForward";
    static constexpr std::string_view kAbout =
        "down(act(up x)), or with a gate down(act(gate x) * up x) (Shazeer, 2020).";
    Required<std::int64_t> hidden_dim;
    Child<Activation> activation = Silu{};
    Child<Layer::Config> gate_proj = Linear::Config{};  // none = there is no gate
    Child<Layer::Config> up_proj = Linear::Config{};
    Child<Layer::Config> down_proj = Linear::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  FeedForward(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  kernels::Expr hidden_ = 0;  // from up_proj, or from gate_proj and up_proj
  Layer *gate_proj_ = nullptr, *up_proj_, *down_proj_;
};

}  // namespace meshloom::layers
