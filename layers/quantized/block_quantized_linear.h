// y = x W^T + b with a frozen matrix in blocks of small integers with their scales, as GGUF files have them. It is multiplied as it is
// stored, so that decoding reads no more bytes than the file has. With an adapter around it only the adapter is trained.
#pragma once

#include "layers/adapters/merge.h"
#include "layers/core/layer.h"
#include "layers/core/quantized_weight.h"
#include "layers/quantized/block_storage.h"

namespace meshloom::layers {

class BlockQuantizedLinear : public Layer, public Mergeable, public QuantizedWeight {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, MergeableConfig {
    static constexpr std::string_view kName = "BlockQuantizedLinear";
    static constexpr std::string_view kAbout =
        "A Linear whose matrix is frozen and stored in blocks of small integers with their scales, as in "
        "GGUF files.";
    bool bias = false;  // in f32; trained as that of a Linear
    Child<Initializer> init = Normal{};
    BlockFields blocks;

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a vector in f32 is added, which is trained as that of a Linear is.",
         means("bias of a product")});
      v("init", init,
        {"How the matrix (output, input) is initialised, before it is quantised.",
         means("start of a product's matrix")});
      blocks.visit(v);
    }
    std::string_view form_of() const override { return "Linear"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> merged_config() const override;
  };

  BlockQuantizedLinear(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;
  Merge merge() const override { return storage_.merge(weight_); }
  QuantizedWeight* quantized_weight() override { return this; }
  // Both throw Error: the norms are not built.
  void keep_squared_row_norms() override { refuse_row_norms(); }
  Tensor squared_row_norms(Context& /*ctx*/) override { refuse_row_norms(); }
  Tensor matmul(Context& ctx, Tensor x) override { return matmul(ctx, x, {}); }

 private:
  Tensor matmul(Context& ctx, Tensor x, Tensor bias);
  [[noreturn]] void refuse_row_norms() const;

  Dims dims_;
  BlockStorage storage_;
  const Parameter& weight_;          // weight_blocks u8 (output, bytes of a row)
  const Parameter* bias_ = nullptr;  // (output)
};

}  // namespace meshloom::layers
