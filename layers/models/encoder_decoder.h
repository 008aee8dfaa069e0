// A model that reads a source and writes what belongs to it (Sutskever et al., 2014; with attention: Vaswani
// et al., 2017).
#pragma once

#include "layers/models/encoder.h"
#include "layers/models/language_model.h"

namespace meshloom::layers {

// The encoder reads Source once; the decoder's layers look at what it made in their cross_attention. Where
// the decoder's embedding is none, the encoder's serves both, and a TiedHead.
class EncoderDecoder : public DecoderModel {
 public:
  struct Config : ConfigOf<Config, LanguageModel::Config> {
    static constexpr std::string_view kName = "EncoderDecoder";
    static constexpr std::string_view kAbout =
        "A model that reads a source and writes what belongs to it (Sutskever et al., 2014).";
    Required<std::int64_t> vocab_size;
    Child<Encoder::Config> encoder = Encoder::Config{};
    Child<Decoder::Config> decoder = Decoder::Config{};
    Child<TokenLoss::Config> loss = CrossEntropy::Config{};

    void fields(FieldVisitor& v) override {
      v("vocab_size", vocab_size,
        {"The number of tokens that both sides know.", at_least(1), means("vocabulary of a model")});
      v("encoder", encoder, {"Reads the source, once."});
      v("decoder", decoder,
        {"Writes, looking at what the encoder made in its cross_attention; embedding=none shares the "
         "encoder's.",
         means("decoder of a model")});
      v("loss", loss, {"What training minimises, token by token.", means("loss of a model")});
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
