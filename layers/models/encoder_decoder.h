// An encoder-decoder model, which writes a target for a source (Sutskever et al., 2014; with attention: Vaswani et al.,
// 2017).
#pragma once

#include "layers/models/encoder.h"
#include "layers/models/language_model.h"

namespace meshloom::layers {

// The encoder reads Source once, and the cross_attention of the decoder's layers attends to its output. If the decoder's
// embedding is none, decoder and TiedHead use that of the encoder.
class EncoderDecoder : public DecoderModel {
 public:
  struct Config : ConfigOf<Config, LanguageModel::Config> {
    static constexpr std::string_view kName = "EncoderDecoder";
    static constexpr std::string_view kAbout =
        "An encoder-decoder model, which writes a target for a source (Sutskever et al., 2014).";
    Required<std::int64_t> vocab_size;
    Child<Encoder::Config> encoder = Encoder::Config{};
    Child<Decoder::Config> decoder = Decoder::Config{};
    Child<TokenLoss::Config> loss = CrossEntropy::Config{};

    void fields(FieldVisitor& v) override {
      v("vocab_size", vocab_size,
        {"The number of tokens of the vocabulary that both sides share.", at_least(1),
         means("vocabulary of a model")});
      v("encoder", encoder, {"Reads the source once."});
      v("decoder", decoder,
        {"Writes the target; its cross_attention attends to the encoder's output, and embedding=none shares "
         "the "
         "encoder's embedding.",
         means("decoder of a model")});
      v("loss", loss, {"The loss of each token, which training minimises.", means("loss of a model")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::int64_t vocabulary() const override { return vocab_size; }
    const layers::Config* source_part() const override { return encoder.raw(); }
    const layers::Config& token_part() const override { return *decoder; }
  };

  EncoderDecoder(const Config& config, const Place& place);

 private:
  void prepare(Context& ctx) override;

  Encoder* encoder_;
};

}  // namespace meshloom::layers
