// A decoder-only language model.
#pragma once

#include "layers/models/language_model.h"

namespace meshloom::layers {

class CausalLM : public DecoderModel {
 public:
  struct Config : ConfigOf<Config, LanguageModel::Config> {
    static constexpr std::string_view kName = "CausalLM";
    static constexpr std::string_view kAbout =
        "A decoder-only language model, which continues a sequence of tokens.";
    Required<std::int64_t> vocab_size;
    Child<Decoder::Config> decoder = Decoder::Config{};
    Child<TokenLoss::Config> loss = CrossEntropy::Config{};

    void fields(FieldVisitor& v) override {
      v("vocab_size", vocab_size,
        {"The number of tokens of the vocabulary.", at_least(1), means("vocabulary of a model")});
      v("decoder", decoder, {"Computes the logits of the next token.", means("decoder of a model")});
      v("loss", loss, {"The loss of each token, which training minimises.", means("loss of a model")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::int64_t vocabulary() const override { return vocab_size; }
  };

  CausalLM(const Config& config, const Place& place);
};

}  // namespace meshloom::layers
