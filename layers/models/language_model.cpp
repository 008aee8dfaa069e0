#include "layers/models/language_model.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/split.h"

namespace meshloom::layers {

void DecoderModel::build(std::int64_t vocabulary, const Child<Decoder::Config>& decoder,
                         const Child<TokenLoss::Config>& loss) {
  vocab_ = vocabulary;
  if (vocab_ <= 0) fail("vocab_size is positive", std::to_string(vocab_));
  decoder_ = &child("decoder", decoder, {vocab_});
  loss_ = &child("loss", loss, {});
}

Tensor DecoderModel::logits(Context& ctx, Tensor tokens) {
  prepare(ctx);
  return (*decoder_)(ctx, tokens);
}

TokenLoss::Result DecoderModel::sliced(Context& ctx, Tensor tokens, Tensor targets) {
  const std::vector<Tensor> rows = kernels::split(decoder_->hidden(ctx, tokens), loss_->rows()),
                            wanted = kernels::split(targets, loss_->rows());
  std::vector<Tensor> loss, valid;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Context slice = ctx.child("slice" + std::to_string(i));
    const std::size_t first = ctx.builder().program().calls.size();
    const TokenLoss::Result result = (*loss_)(slice, decoder_->scores(slice, rows[i]), wanted[i]);
    loss.push_back(result.loss);
    valid.push_back(result.valid);
    // Nothing as wide as the vocabulary waits for the backward pass.
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
    const Tensor scores = (*decoder_)(ctx, tokens);
    return (*loss_)(ctx, scores, kernels::reshape(targets, {rows}));
  };
  const auto [loss, valid] = loss_->rows() > 0 && loss_->rows() < rows
                                 ? sliced(ctx, tokens, kernels::reshape(targets, {rows}))
                                 : whole();
  Tensor sum = kernels::reduce_sum(loss, 0);
  const Tensor count = kernels::reduce_sum(valid, 0);
  for (const Tensor& aux : ctx.outputs_named("aux_loss")) sum = kernels::add(sum, kernels::mul(aux, count));
  return {sum, count};
}

}  // namespace meshloom::layers
