#include "layers/models/encoder_decoder.h"

#include "layers/attention/cross_attention.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> EncoderDecoder::Config::build(const Place& place) const {
  return std::make_unique<EncoderDecoder>(*this, place);
}

EncoderDecoder::EncoderDecoder(const Config& config, const Place& place) : DecoderModel(place) {
  encoder_ = &child("encoder", config.encoder, {config.vocab_size});
  provide(encoder_->embedding());
  provide(EncoderOutputDim{encoder_->dim()});
  build(config.vocab_size, config.decoder, config.loss);
}

void EncoderDecoder::prepare(Context& ctx) {
  if (ctx.find<InferenceStep>()) return;  // the sources were read ahead of it
  const Source& source = ctx.get<Source>("Source");
  Context below = ctx.child("encoder");
  below.put(Segments{source.segments});
  if (source.positions) below.put(Positions{source.positions});
  const Tensor hidden_states = encoder_->features(below, source.tokens);
  ctx.put(EncoderOutput{hidden_states, {source.tokens.dim(0), source.tokens.dim(1)}, source.segments});
}

void add_encoder_decoder_classes(ClassTable& classes) { classes.add<EncoderDecoder::Config>(); }

}  // namespace meshloom::layers
