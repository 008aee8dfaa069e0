#include "layers/residual_forms.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {
namespace {

// The children they share.
class Block : public Layer {
 public:
  Block(const ResidualForm& config, const Place& place, bool second_norm = true) : Layer(place) {
    const Dims dims = config.dims;
    if (dims.input != dims.output)
      fail("a residual layer keeps the size", std::to_string(dims.input) + " to " + std::to_string(dims.output));
    attention_norm_ = &child("attention_norm", config.attention_norm, dims);
    attention_ = &child("attention", config.attention, dims);
    if (second_norm) feed_forward_norm_ = &child("feed_forward_norm", config.feed_forward_norm, dims);
    feed_forward_ = &child("feed_forward", config.feed_forward, dims);
  }

 protected:
  static Tensor mark(Context& ctx, Tensor x, const char* tag) {
    return ctx.mark(x, tag, {axis::kTokens, axis::kEmbed});
  }

  Norm *attention_norm_, *feed_forward_norm_ = nullptr;
  Layer *attention_, *feed_forward_;
};

class PostNorm : public Block {
 public:
  using Block::Block;
  Tensor forward(Context& ctx, Tensor x) override {
    mark(ctx, x, "layer.input");
    const Tensor h = (*attention_norm_)(ctx, kernels::add(x, (*attention_)(ctx, x)));
    mark(ctx, h, "layer.middle");
    return mark(ctx, (*feed_forward_norm_)(ctx, kernels::add(h, (*feed_forward_)(ctx, h))), "layer.output");
  }
};

class HybridNorm : public Block {
 public:
  HybridNorm(const HybridNormLayer& config, const Place& place)
      : Block(config, place),
        attention_post_norm_(&child("attention_post_norm", config.attention_post_norm, config.dims)),
        feed_forward_post_norm_(&child("feed_forward_post_norm", config.feed_forward_post_norm, config.dims)) {}
  Tensor forward(Context& ctx, Tensor x) override {
    mark(ctx, x, "layer.input");
    const Tensor a = (*attention_)(ctx, (*attention_norm_)(ctx, x));
    const Tensor h = mark(ctx, kernels::add(x, (*attention_post_norm_)(ctx, a)), "layer.middle");
    const Tensor f = (*feed_forward_)(ctx, (*feed_forward_norm_)(ctx, h));
    return mark(ctx, kernels::add(h, (*feed_forward_post_norm_)(ctx, f)), "layer.output");
  }

 private:
  Norm *attention_post_norm_, *feed_forward_post_norm_;
};

class Parallel : public Block {
 public:
  using Block::Block;
  Tensor forward(Context& ctx, Tensor x) override {
    mark(ctx, x, "layer.input");
    const Tensor one = (*attention_norm_)(ctx, x);
    const Tensor other = feed_forward_norm_ ? (*feed_forward_norm_)(ctx, x) : one;
    const Tensor h = kernels::add(x, (*attention_)(ctx, one));
    return mark(ctx, kernels::add(h, (*feed_forward_)(ctx, other)), "layer.output");
  }
};

}  // namespace

void ResidualForm::fields(FieldVisitor& v) {
  v("attention_norm", attention_norm);
  v("attention", attention);
  v("feed_forward_norm", feed_forward_norm);
  v("feed_forward", feed_forward);
}

void HybridNormLayer::fields(FieldVisitor& v) {
  ResidualForm::fields(v);
  v("attention_post_norm", attention_post_norm);
  v("feed_forward_post_norm", feed_forward_post_norm);
}

std::unique_ptr<Module> PostNormLayer::build(const Place& place) const {
  return std::make_unique<PostNorm>(*this, place);
}
std::unique_ptr<Module> HybridNormLayer::build(const Place& place) const {
  return std::make_unique<HybridNorm>(*this, place);
}
std::unique_ptr<Module> ParallelLayer::build(const Place& place) const {
  return std::make_unique<Parallel>(*this, place, static_cast<bool>(feed_forward_norm));
}

void add_residual_forms_classes(ClassTable& classes) {
  classes.add<PostNormLayer>();
  classes.add<HybridNormLayer>();
  classes.add<ParallelLayer>();
}

}  // namespace meshloom::layers
