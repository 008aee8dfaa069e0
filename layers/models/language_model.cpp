#include "layers/models/language_model.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/split.h"

namespace meshloom::layers {

void DecoderModel::build(std::int64_t vocabulary, const Child<Decoder::Config>& decoder,
                         const Child<TokenLoss::Config>& loss) {
  vocab_ = vocabulary;
  if (vocab_ <= 0) fail("vocab_size must be positive", std::to_string(vocab_));
  decoder_ = &child("decoder", decoder, {vocab_});
  loss_ = &child("loss", loss, {});
}

Tensor DecoderModel::logits(Context& ctx, Tensor tokens) {
  prepare(ctx);
  return (*decoder_)(ctx, tokens);
}

Tensor DecoderModel::logits(Context& ctx, Tensor tokens, Tensor rows) {
  prepare(ctx);
  return decoder_->forward(ctx, tokens, rows);
}

TokenLoss::Result DecoderModel::chunked_loss(Context& ctx, Tensor tokens, Tensor targets) {
  const std::vector<Tensor> rows = kernels::split(decoder_->hidden_states(ctx, tokens), loss_->chunk_size()),
                            wanted = kernels::split(targets, loss_->chunk_size());
  std::vector<Tensor> loss, valid;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // The name of the call stays "slice": random keys and the names of summaries depend on it.
    Context chunk = ctx.child("slice" + std::to_string(i));
    const std::size_t first = ctx.builder().program().calls.size();
    const TokenLoss::Result result = (*loss_)(chunk, decoder_->logits(chunk, rows[i]), wanted[i]);
    loss.push_back(result.loss);
    valid.push_back(result.valid);
    // No tensor with a vocabulary dimension is kept for the backward pass.
    kernels::Program& program = ctx.builder().program();
    for (std::size_t c = first; c < program.calls.size(); ++c)
      for (const kernels::ValueId id : program.calls[c].outputs)
        if (program.value(id).type.rank() == 2 && program.value(id).type.dim(-1) == vocab_)
          program.value(id).tag = "recompute.scores";
  }
  return {kernels::concat_rows(loss), kernels::concat_rows(valid)};
}

LanguageModel::Loss DecoderModel::loss(Context& ctx, Tensor tokens, Tensor targets) {
  prepare(ctx);
  const std::int64_t rows = targets.type().elements();
  const auto whole = [&] {
    const Tensor logits = (*decoder_)(ctx, tokens);
    return (*loss_)(ctx, logits, kernels::reshape(targets, {rows}));
  };
  const TokenLoss::Result of_tokens = loss_->chunk_size() > 0 && loss_->chunk_size() < rows
                                          ? chunked_loss(ctx, tokens, kernels::reshape(targets, {rows}))
                                          : whole();
  const auto [loss, valid] = loss_->combine(ctx, of_tokens);
  Tensor sum = kernels::reduce_sum(loss, 0);
  const Tensor count = kernels::reduce_sum(valid, 0);
  for (const Tensor& aux : ctx.outputs_named("aux_loss")) sum = kernels::add(sum, kernels::mul(aux, count));
  return {sum, count};
}

}  // namespace meshloom::layers
