// y = x W^T + b with a frozen weight in four-bit NormalFloat (kernels/nf4_matmul/nf4.h). It is quantised once, when the
// model is initialised or loaded. With an adapter around it this is QLoRA (Dettmers et al., 2023). Below a mixture of
// experts the weights of all experts are dequantised for the product, in each pass.
#pragma once

#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "layers/adapters/merge.h"
#include "layers/core/layer.h"
#include "layers/core/quantized_weight.h"

namespace meshloom::layers {

class Nf4Linear : public Layer, public Mergeable, public QuantizedWeight {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, MergeableConfig {
    static constexpr std::string_view kName = "Nf4Linear";
    static constexpr std::string_view kAbout =
        "A Linear whose matrix is frozen and stored in four bits, NF4 (Dettmers et al., 2023).";
    bool bias = false;  // in f32; trained as that of a Linear
    Child<Initializer> init = Normal{};
    std::int64_t block =
        kernels::nf4::kBlock;       // weights along the inputs that share a scale; a multiple of 8
    bool double_quantized = false;  // whether scales have eight bits: 0.13 bits per weight instead of 0.5

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a vector in f32 is added, which is trained as that of a Linear is.",
         means("bias of a product")});
      v("init", init,
        {"How the matrix (output, input) is initialised, before it is quantised.",
         means("start of a product's matrix")});
      v("block", block, {"How many weights along the inputs share a scale.", positive_multiple_of(8)});
      v("double_quantized", double_quantized,
        {"Whether the scales are quantised too, to eight bits: 0.13 bits per weight instead of 0.5."});
    }
    std::string_view form_of() const override { return "Linear"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> merged_config() const override;
  };

  Nf4Linear(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;
  Merge merge() const override;
  QuantizedWeight* quantized_weight() override { return this; }
  void keep_squared_row_norms() override;
  Tensor squared_row_norms(Context& ctx) override { return ctx.parameter(*squares_); }
  Tensor matmul(Context& ctx, Tensor x) override;

 private:
  bool has_experts() const { return codes_.type.rank() == 3; }
  kernels::Nf4Options options(Context& ctx) const;
  Tensor dequantize(Context& ctx);  // (experts, output, input), which matmul() uses too
  Tensor matmul(Context& ctx, Tensor x, Tensor bias);

  Dims dims_;
  std::int64_t block_;
  Child<Initializer> init_;
  // weight_codes u8 (output, bytes), weight_scales f32 or u8 (output, blocks)
  const Parameter &codes_, &scales_;
  const Parameter *steps_ = nullptr, *bias_ = nullptr;  // weight_steps (output), bias (output)
  const Parameter* squares_ = nullptr;                  // weight_squares (output); nullptr = not asked for
};

}  // namespace meshloom::layers
