#include "layers/models/causal_lm.h"

namespace meshloom::layers {

std::unique_ptr<Module> CausalLM::Config::build(const Place& place) const {
  return std::make_unique<CausalLM>(*this, place);
}

CausalLM::CausalLM(const Config& config, const Place& place) : DecoderModel(place) {
  build(config.vocab_size, config.decoder, config.loss);
}

void add_causal_lm_classes(ClassTable& classes) { classes.add<CausalLM::Config>(); }

}  // namespace meshloom::layers
