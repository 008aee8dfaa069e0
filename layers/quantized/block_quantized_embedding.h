// An embedding whose frozen table is stored in blocks of small integers with their scales, as GGUF files have it. A tied head
// multiplies by the same blocks.
#pragma once

#include "layers/adapters/merge.h"
#include "layers/embedding/embedding.h"
#include "layers/quantized/block_storage.h"

namespace meshloom::layers {

class BlockQuantizedEmbedding : public TokenEmbedding, public Mergeable {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config>, MergeableConfig {
    static constexpr std::string_view kName = "BlockQuantizedEmbedding";
    static constexpr std::string_view kAbout =
        "An Embedding whose table is frozen and stored in blocks of small integers with their scales, as in "
        "GGUF files.";
    Child<Initializer> init = Normal{};
    BlockFields blocks;

    void fields(FieldVisitor& v) override {
      v("init", init, {"How the vectors are initialised."});
      blocks.visit(v);
    }
    std::string_view form_of() const override { return "Embedding"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> merged_config() const override;
  };

  BlockQuantizedEmbedding(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor ids) override;
  Tensor attend(Context& ctx, Tensor x) override;
  Merge merge() const override { return storage_.merge(weight_); }

 private:
  BlockStorage storage_;
  const Parameter& weight_;  // weight_blocks u8 (vocab, bytes of a row)
};

}  // namespace meshloom::layers
