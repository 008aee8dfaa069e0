#include "layers/loss/chunked_loss.h"

namespace meshloom::layers {

std::unique_ptr<Module> SlicedLoss::Config::build(const Place& place) const {
  return std::make_unique<SlicedLoss>(*this, place);
}

SlicedLoss::SlicedLoss(const Config& config, const Place& place)
    : TokenLoss(place), base_(&inner(config.base, {})), rows_(config.rows) {
  if (rows_ <= 0) fail("rows is positive", std::to_string(rows_));
}

TokenLoss::Result SlicedLoss::forward(Context& ctx, Tensor logits, Tensor targets) {
  return base_->forward(ctx, logits, targets);
}

void add_sliced_loss_classes(ClassTable& classes) { classes.add<SlicedLoss::Config>(); }

}  // namespace meshloom::layers
