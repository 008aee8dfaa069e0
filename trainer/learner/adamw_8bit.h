// AdamW whose moments take eight bits each (Dettmers, Lewis, Shleifer and Zettlemoyer, 8-bit optimizers via block-wise
// quantization, 2022), as bitsandbytes and torchao have it: blocks of 256 elements share a scale, kernels/adamw_8bit.
#pragma once

#include "trainer/learner/adamw.h"

namespace meshloom::trainer {

struct AdamW8bit : AdamW {
  struct Config : layers::ConfigOf<Config, AdamW::Config> {
    static constexpr std::string_view kName = "AdamW8bit";
    static constexpr std::string_view kAbout =
        "AdamW whose moments take eight bits each, in blocks that share a scale (Dettmers et al., 2022).";
    std::int64_t min_8bit_size = 4096;  // elements

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;

   private:
    bool quantized(const layers::ParameterInfo& info) const { return info.type.elements() >= min_8bit_size; }
  };
};

}  // namespace meshloom::trainer
