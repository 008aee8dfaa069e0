#include "layers/block/residual_layers.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {
namespace {

class PostNorm : public ResidualLayer {
 public:
  PostNorm(const PostNormLayer& config, const Place& place) : ResidualLayer(config, place) {}
  Tensor forward(Context& ctx, Tensor x) override {
    return apply_branches(ctx, x, [&](const Branch& branch, Tensor h) {
      return (*branch.norm)(ctx, kernels::add(h, (*branch.layer)(ctx, h)));
    });
  }
};

class HybridNorm : public ResidualLayer {
 public:
  HybridNorm(const HybridNormLayer& config, const Place& place) : ResidualLayer(config, place) {
    build_post_norms(config.attention_post_norm, config.feed_forward_post_norm, config.dims);
  }
  Tensor forward(Context& ctx, Tensor x) override {
    return apply_branches(ctx, x, [&](const Branch& branch, Tensor h) {
      const Tensor output = (*branch.layer)(ctx, (*branch.norm)(ctx, h));
      return kernels::add(h, (*branch.post_norm)(ctx, output));
    });
  }
};

class Parallel : public ResidualLayer {
 public:
  Parallel(const ParallelLayer& config, const Place& place)
      : ResidualLayer(config, place, !config.feed_forward_norm) {}
  Tensor forward(Context& ctx, Tensor x) override {
    mark(ctx, x, "layer.input");
    std::vector<Tensor> normed;
    for (const Branch& branch : branches_)
      normed.push_back(branch.norm ? (*branch.norm)(ctx, x) : normed.front());
    for (std::size_t i = 0; i < branches_.size(); ++i)
      x = kernels::add(x, (*branches_[i].layer)(ctx, normed[i]));
    return mark(ctx, x, "layer.output");
  }
};

}  // namespace

void HybridNormLayer::fields(FieldVisitor& v) {
  ResidualLayer::Config::fields(v);
  v("attention_post_norm", attention_post_norm, {"The normalisation of the attention's output."});
  v("feed_forward_post_norm", feed_forward_post_norm, {"The normalisation of the feed-forward's output."});
}

std::unique_ptr<Module> PostNormLayer::build(const Place& place) const {
  return std::make_unique<PostNorm>(*this, place);
}
std::unique_ptr<Module> HybridNormLayer::build(const Place& place) const {
  return std::make_unique<HybridNorm>(*this, place);
}
std::unique_ptr<Module> ParallelLayer::build(const Place& place) const {
  return std::make_unique<Parallel>(*this, place);
}

void add_residual_layers_classes(ClassTable& classes) {
  classes.add<PostNormLayer>();
  classes.add<HybridNormLayer>();
  classes.add<ParallelLayer>();
}

}  // namespace meshloom::layers
