#include "layers/models/decoder.h"

namespace meshloom::layers {

void Decoder::Config::fields(FieldVisitor& v) {
  Trunk::Config::fields(v);
  v("head", head, {"Makes the scores of all tokens, (N, vocabulary), of the last features."});
}

std::unique_ptr<Module> Decoder::Config::build(const Place& place) const {
  return std::make_unique<Decoder>(*this, place);
}

Decoder::Decoder(const Config& config, const Place& place)
    : Trunk(config, place),
      head_(&child("head", config.head, {dim(), config.dims.vocab, axis::kEmbed, axis::kVocab})) {}

void add_decoder_classes(ClassTable& classes) { classes.add<Decoder::Config>(); }

}  // namespace meshloom::layers
