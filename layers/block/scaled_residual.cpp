#include "layers/block/scaled_residual.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {
namespace {

class ScaledResidual : public ResidualLayer {
 public:
  ScaledResidual(const ScaledResidualLayer& config, const Place& place)
      : ResidualLayer(config, place), scale_(config.residual_scale) {}
  Tensor forward(Context& ctx, Tensor x) override {
    return apply_branches(ctx, x, [&](const Branch& branch, Tensor h) {
      const auto [stream, output] = kernels::inputs<2>();
      return kernels::elementwise({h, (*branch.layer)(ctx, (*branch.norm)(ctx, h))},
                                  stream + scale_ * output);
    });
  }

 private:
  double scale_;
};

}  // namespace

void ScaledResidualLayer::fields(FieldVisitor& v) {
  ResidualLayer::Config::fields(v);
  v("residual_scale", residual_scale, {"Factor on what each branch adds to the residual stream."});
}

std::unique_ptr<Module> ScaledResidualLayer::build(const Place& place) const {
  return std::make_unique<ScaledResidual>(*this, place);
}

void add_scaled_residual_classes(ClassTable& classes) { classes.add<ScaledResidualLayer>(); }

}  // namespace meshloom::layers
