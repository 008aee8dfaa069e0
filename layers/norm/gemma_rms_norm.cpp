#include "layers/norm/gemma_rms_norm.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/rms_norm/rms_norm.h"

namespace meshloom::layers {

std::unique_ptr<Module> GemmaRMSNorm::Config::build(const Place& place) const {
  return std::make_unique<GemmaRMSNorm>(*this, place);
}

GemmaRMSNorm::GemmaRMSNorm(const Config& config, const Place& place)
    : Norm(place),
      size_(config.dims.input),
      eps_(config.eps),
      weight_(parameter("weight", {size_}, {config.dims.input_axis}, Constant{0})) {}

Tensor GemmaRMSNorm::forward(Context& ctx, Tensor x) {
  check_features(x, size_);
  const Tensor scale = kernels::elementwise({ctx.parameter(weight_)}, 1 + kernels::Expr::input(0));
  const Tensor y = kernels::rms_norm(x, scale, eps_);
  ctx.builder().tag(y, "norm");
  if (y.type().rank() == 2) ctx.builder().axes(y, {axis::kTokens, axis::kEmbed});
  return y;
}

void add_gemma_rms_norm_classes(ClassTable& classes) { classes.add<GemmaRMSNorm::Config>(); }

}  // namespace meshloom::layers
