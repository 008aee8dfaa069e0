#include "layers/embedding/head.h"

namespace meshloom::layers {

std::unique_ptr<Module> TiedHead::Config::build(const Place& place) const {
  return std::make_unique<TiedHead>(*this, place);
}

TiedHead::TiedHead(const Config& config, const Place& place) : Layer(place), input_(config.dims.input) {
  const SharedEmbedding* shared = inherited<SharedEmbedding>();
  if (!shared) fail("a TiedHead must be below a module that shares its embedding", "none");
  embedding_ = shared->module;
}

Tensor TiedHead::forward(Context& ctx, Tensor x) {
  check_features(x, input_);
  return embedding_->attend(ctx, x);
}

void add_head_classes(ClassTable& classes) { classes.add<TiedHead::Config>(); }

}  // namespace meshloom::layers
