#include "layers/loss/regularized_loss.h"

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::layers {

std::unique_ptr<Module> RegularizedCrossEntropy::Config::build(const Place& place) const {
  return std::make_unique<RegularizedCrossEntropy>(*this, place);
}

RegularizedCrossEntropy::RegularizedCrossEntropy(const Config& config, const Place& place)
    : TokenLoss(place), smoothing_(config.label_smoothing), z_(config.z_loss) {
  if (!(smoothing_ >= 0 && smoothing_ < 1))
    fail("label_smoothing must be at least 0 and below 1", std::to_string(smoothing_));
  if (!(z_ >= 0)) fail("z_loss must be at least 0", std::to_string(z_));
}

TokenLoss::Result RegularizedCrossEntropy::forward(Context& ctx, Tensor logits, Tensor targets) {
  const kernels::CrossEntropy result = kernels::cross_entropy(logits, targets);
  if (!ctx.training() || (smoothing_ == 0 && z_ == 0)) return {result.loss, result.valid};
  const auto [loss, lse, valid, logit_sum] = kernels::inputs<4>();
  kernels::Expr terms = z_ > 0 ? z_ * (lse * lse) : kernels::Expr(0);
  std::vector<Tensor> inputs{result.loss, result.lse, result.valid};
  if (smoothing_ > 0) {
    const std::int64_t rows = logits.dim(0), vocabulary = logits.dim(1);
    const Tensor ones = kernels::constant(ctx.builder(), 1.0, {vocabulary, 1});
    inputs.push_back(kernels::reshape(kernels::matmul(logits, ones), {rows}));
    terms = terms + smoothing_ * (lse - 1 / static_cast<double>(vocabulary) * logit_sum);
  }
  // The terms of an ignored row are left out by a selection, not by a product with 0: its lse may be infinite.
  return {kernels::elementwise(inputs, select(valid, (1 - smoothing_) * loss + terms, 0)), result.valid};
}

void add_regularized_loss_classes(ClassTable& classes) { classes.add<RegularizedCrossEntropy::Config>(); }

}  // namespace meshloom::layers
