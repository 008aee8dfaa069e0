// y = x W^T + b with the weight held in four bits (kernels/nf4_matmul/nf4.h): quantised once, when the model
// starts or is loaded, and frozen. With adapters around it this is QLoRA (Dettmers et al., 2023). Below experts each has
// its own; the product with them takes floats, which a layer's pass makes of all of them.
#pragma once

#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "layers/adapters/merge.h"
#include "layers/core/layer.h"
#include "layers/core/packed_matrix.h"

namespace meshloom::layers {

class Nf4Linear : public Layer, public Foldable, public PackedMatrix {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, FoldableConfig {
    static constexpr std::string_view kName = "Nf4Linear";
    static constexpr std::string_view kAbout =
        "A Linear whose matrix is frozen and held in four bits, NF4 (Dettmers et al., 2023).";
    bool bias = false;  // in f32; learns where a Linear's would
    Child<Initializer> init = Normal{};
    std::int64_t block =
        kernels::nf4::kBlock;  // weights that share a scale, along the inputs; a multiple of 8

    bool double_quantized = false;  // the scales too, to eight bits: 0.13 bits for each weight instead of 0.5

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a vector in f32 is added, which learns as that of a Linear does.",
         means("bias of a product")});
      v("init", init,
        {"How the matrix (output, input) starts, before it is quantised.",
         means("start of a product's matrix")});
      v("block", block, {"How many weights along the inputs share a scale.", positive_multiple_of(8)});
      v("double_quantized", double_quantized,
        {"Whether the scales are kept in eight bits too: 0.13 bits per weight instead of 0.5."});
    }
    std::string_view form_of() const override { return "Linear"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> plain() const override;
  };

  Nf4Linear(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;
  Fold fold() const override;
  PackedMatrix* packed_matrix() override { return this; }
  void keep_squared_lengths() override;
  Tensor squared_lengths(Context& ctx) override { return ctx.parameter(*squares_); }
  Tensor times(Context& ctx, Tensor x) override;

 private:
  bool of_experts() const { return codes_.type.rank() == 3; }
  kernels::Nf4Options options(Context& ctx) const;
  Tensor unpack(Context& ctx);  // (experts, output, input), which times() takes too
  Tensor times(Context& ctx, Tensor x, Tensor bias);

  Dims dims_;
  std::int64_t block_;
  Child<Initializer> init_;
  // weight_codes u8 (output, bytes), weight_scales f32 or u8 (output, blocks)
  const Parameter &codes_, &scales_;
  const Parameter *steps_ = nullptr, *bias_ = nullptr;  // weight_steps (output), bias (output)
  const Parameter* squares_ = nullptr;                  // weight_squares (output), where it is kept
};

}  // namespace meshloom::layers
