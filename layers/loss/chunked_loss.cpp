#include "layers/loss/chunked_loss.h"

namespace meshloom::layers {

std::unique_ptr<Module> ChunkedLoss::Config::build(const Place& place) const {
  return std::make_unique<ChunkedLoss>(*this, place);
}

ChunkedLoss::ChunkedLoss(const Config& config, const Place& place)
    : TokenLoss(place), base_(&inner(config.base, {})), chunk_size_(config.chunk_size) {
  if (chunk_size_ <= 0) fail("chunk_size must be positive", std::to_string(chunk_size_));
}

TokenLoss::Result ChunkedLoss::forward(Context& ctx, Tensor logits, Tensor targets) {
  return base_->forward(ctx, logits, targets);
}

void add_chunked_loss_classes(ClassTable& classes) { classes.add<ChunkedLoss::Config>(); }

}  // namespace meshloom::layers
