#include "layers/models/decoder.h"

namespace meshloom::layers {

void Decoder::Config::fields(FieldVisitor& v) {
  Backbone::Config::fields(v);
  v("head", head, {"The projection from the last features to logits (N, vocabulary)."});
}

std::unique_ptr<Module> Decoder::Config::build(const Place& place) const {
  return std::make_unique<Decoder>(*this, place);
}

Decoder::Decoder(const Config& config, const Place& place)
    : Backbone(config, place),
      head_(&child("head", config.head, {dim(), config.dims.vocab, axis::kEmbed, axis::kVocab})) {}

void add_decoder_classes(ClassTable& classes) { classes.add<Decoder::Config>(); }

}  // namespace meshloom::layers
