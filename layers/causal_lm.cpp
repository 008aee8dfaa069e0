#include "layers/causal_lm.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::layers {

std::unique_ptr<Module> CausalLM::Config::build(const Place& place) const {
  return std::make_unique<CausalLM>(*this, place);
}

CausalLM::CausalLM(const Config& config, const Place& place) : LanguageModel(place) {
  const std::int64_t vocab = config.vocab_size;
  if (vocab <= 0) fail("vocab_size is positive", std::to_string(vocab));
  decoder_ = &child("decoder", config.decoder, {vocab});
  loss_ = &child("loss", config.loss, {});
}

Tensor CausalLM::logits(Context& ctx, Tensor tokens) { return (*decoder_)(ctx, tokens); }

LanguageModel::Loss CausalLM::loss(Context& ctx, Tensor tokens, Tensor targets) {
  const Tensor scores = logits(ctx, tokens);
  const auto [loss, valid] = (*loss_)(ctx, scores, kernels::reshape(targets, {targets.type().elements()}));
  Tensor sum = kernels::reduce_sum(loss, 0);
  const Tensor count = kernels::reduce_sum(valid, 0);
  for (const Tensor& aux : ctx.outputs_named("aux_loss")) sum = kernels::add(sum, kernels::mul(aux, count));
  return {sum, count};
}

void add_causal_lm_classes(ClassTable& classes) { classes.add<CausalLM::Config>(); }

}  // namespace meshloom::layers
