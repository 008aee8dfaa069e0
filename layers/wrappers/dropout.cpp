#include "layers/wrappers/dropout.h"

#include "layers/core/dropout.h"

namespace meshloom::layers {

std::unique_ptr<Module> Dropout::Config::build(const Place& place) const {
  return std::make_unique<Dropout>(*this, place);
}

Dropout::Dropout(const Config& config, const Place& place)
    : Layer(place),
      base_(&inner(config.base, config.dims)),
      rate_(checked_dropout_rate(path(), config.rate)),
      input_(config.input) {}

Tensor Dropout::forward(Context& ctx, Tensor x) {
  if (input_) return base_->forward(ctx, dropout(ctx, x, rate_, "input_dropout"));
  return dropout(ctx, base_->forward(ctx, x), rate_);
}

std::unique_ptr<Module> DropoutEmbedding::Config::build(const Place& place) const {
  return std::make_unique<DropoutEmbedding>(*this, place);
}

DropoutEmbedding::DropoutEmbedding(const Config& config, const Place& place)
    : TokenEmbedding(place),
      base_(&inner(config.base, config.dims)),
      rate_(checked_dropout_rate(path(), config.rate)) {}

Tensor DropoutEmbedding::forward(Context& ctx, Tensor ids) {
  return dropout(ctx, base_->forward(ctx, ids), rate_);
}

Tensor DropoutEmbedding::attend(Context& ctx, Tensor x) { return base_->attend(ctx, x); }

std::unique_ptr<Module> StochasticDepth::Config::build(const Place& place) const {
  return std::make_unique<StochasticDepth>(*this, place);
}

StochasticDepth::StochasticDepth(const Config& config, const Place& place)
    : Layer(place),
      base_(&inner(config.base, config.dims)),
      rate_(checked_dropout_rate(path(), config.rate)) {
  if (!config.grows) return;
  const Depth* depth = inherited<Depth>();
  if (!depth) fail("with grows it must be in a layer of a stack", "no stack around it");
  rate_ *= static_cast<double>(depth->index + 1) / static_cast<double>(depth->layers);
}

Tensor StochasticDepth::forward(Context& ctx, Tensor x) {
  return stochastic_depth(ctx, base_->forward(ctx, x), rate_, "stochastic_depth");
}

void add_dropout_classes(ClassTable& classes) {
  classes.add<Dropout::Config>();
  classes.add<DropoutEmbedding::Config>();
  classes.add<StochasticDepth::Config>();
}

}  // namespace meshloom::layers
