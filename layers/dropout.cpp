#include "layers/dropout.h"

#include "kernels/dropout/dropout.h"

namespace meshloom::layers {
namespace {

// With `whole_rows` a row of the batch is dropped as one.
Tensor drop(Context& caller, Tensor x, double rate, const std::string& name, bool whole_rows) {
  if (!caller.training() || rate == 0) return x;
  Context ctx = caller.child(name);
  const std::int64_t count = x.type().elements();
  const Tokens* tokens = ctx.find<Tokens>();
  // What is not laid out by rows of the batch (an expert's tokens) is one row.
  const std::int64_t batch = tokens ? tokens->batch : x.dim(0), rows = count % batch == 0 ? batch : 1;
  const std::vector<std::string> axes = ctx.builder().program().value(x.id).axes;
  const Tensor y = kernels::dropout(
      x, ctx.draw(),
      {.rate = rate, .key = ctx.key().value, .rows = rows, .share = whole_rows ? count / rows : 1});
  ctx.builder().tag(y, ctx.tag());
  if (!axes.empty()) ctx.builder().axes(y, axes);
  return y;
}

}  // namespace

Tensor dropped(Context& ctx, Tensor x, double rate, const std::string& name) {
  return drop(ctx, x, rate, name, false);
}

double dropout_rate(const std::string& path, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw Error(shown(path), "the rate of what is dropped is in [0, 1)", std::to_string(rate));
  return rate;
}

std::unique_ptr<Module> Dropout::Config::build(const Place& place) const {
  return std::make_unique<Dropout>(*this, place);
}

Dropout::Dropout(const Config& config, const Place& place)
    : Layer(place),
      base_(&inner(config.base, config.dims)),
      rate_(dropout_rate(path(), config.rate)),
      input_(config.input) {}

Tensor Dropout::forward(Context& ctx, Tensor x) {
  if (input_) return base_->forward(ctx, dropped(ctx, x, rate_, "input_dropout"));
  return dropped(ctx, base_->forward(ctx, x), rate_);
}

std::unique_ptr<Module> DropoutEmbedding::Config::build(const Place& place) const {
  return std::make_unique<DropoutEmbedding>(*this, place);
}

DropoutEmbedding::DropoutEmbedding(const Config& config, const Place& place)
    : TokenEmbedding(place),
      base_(&inner(config.base, config.dims)),
      rate_(dropout_rate(path(), config.rate)) {}

Tensor DropoutEmbedding::forward(Context& ctx, Tensor ids) {
  return dropped(ctx, base_->forward(ctx, ids), rate_);
}

Tensor DropoutEmbedding::attend(Context& ctx, Tensor x) { return base_->attend(ctx, x); }

std::unique_ptr<Module> StochasticDepth::Config::build(const Place& place) const {
  return std::make_unique<StochasticDepth>(*this, place);
}

StochasticDepth::StochasticDepth(const Config& config, const Place& place)
    : Layer(place), base_(&inner(config.base, config.dims)), rate_(dropout_rate(path(), config.rate)) {
  if (!config.grows) return;
  const Depth* depth = inherited<Depth>();
  if (!depth) fail("a rate that grows is that of a layer of a stack", "none around it");
  rate_ *= static_cast<double>(depth->index + 1) / static_cast<double>(depth->layers);
}

Tensor StochasticDepth::forward(Context& ctx, Tensor x) {
  return drop(ctx, base_->forward(ctx, x), rate_, "stochastic_depth", true);
}

void add_dropout_classes(ClassTable& classes) {
  classes.add<Dropout::Config>();
  classes.add<DropoutEmbedding::Config>();
  classes.add<StochasticDepth::Config>();
}

}  // namespace meshloom::layers
