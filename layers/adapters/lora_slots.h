// Low-rank changes of many adapters beside one frozen layer, of which each token takes its own: how requests with different adapters
// share a step of inference (Chen et al., Punica, 2023; Sheng et al., S-LoRA, 2023).
#pragma once

#include "layers/adapters/adapter.h"

namespace meshloom::layers {

// y = W x + b + B[s] (A[s] x) with the slot s of the token, whose factor alpha / rank is part of B. Whoever runs the program fills
// the slots, from the rank of an adapter to `rank` with zeros; they belong to the program and not to the model, as caches do. A
// token of slot -1 has the bits of the layer without slots. Outside of an InferenceStep the layer is what it adapts.
class LoraSlots : public Adapter {
 public:
  struct Config : ConfigOf<Config, Adapter::Config> {
    static constexpr std::string_view kName = "LoraSlots";
    static constexpr std::string_view kAbout =
        "Room for the low-rank changes of several adapters, of which each token of a server takes its own "
        "(Punica, Chen et al., 2023).";
    std::int64_t slots = 8, rank = 16;
    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LoraSlots(const Config& config, const Place& place);
  Merge merge() const override;

  // Inputs of a step, i32: the slot of each token (N), and of each whose logits are wanted (L); -1 = none.
  static constexpr const char *kInput = "adapters", *kRowsInput = "row_adapters";
  // Behind the path of the adapted layer: A of all slots (slots, rank, input) and the transposed B
  // (slots, rank, output).
  static constexpr const char *kA = "lora_slots_a", *kB = "lora_slots_b";

 protected:
  Tensor adapt(Context& ctx, Tensor x, Tensor y) override;

 private:
  std::int64_t slots_, rank_;
};

}  // namespace meshloom::layers
