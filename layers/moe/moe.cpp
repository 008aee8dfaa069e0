#include "layers/moe/moe.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/moe_routing/moe_routing.h"
#include "layers/core/experts.h"

namespace meshloom::layers {

void MoE::Config::fields(FieldVisitor& v) {
  FeedForward::Config::fields(v);
  v("num_experts", num_experts, {"The number of experts.", at_least(1)});
  v("gating", gating, {"Chooses the experts of each token, and their weights."});
  v("shared", shared, {"A shared expert, which every token goes through; none: there is none."});
}

std::unique_ptr<Module> MoE::Config::build(const Place& place) const {
  return std::make_unique<MoE>(*this, place);
}

MoE::MoE(const Config& config, const Place& place)
    : Layer(place), dims_(config.dims), num_experts_(config.num_experts) {
  if (num_experts_ < 1) fail("num_experts must be positive", std::to_string(num_experts_));
  gating_ = &child("gating", config.gating, {dims_.input, num_experts_, dims_.input_axis});
  if (config.shared) shared_ = &child("shared", config.shared, dims_);
  provide(Experts{num_experts_});
  const FeedForward::Config& expert = config;
  experts_ = &child("experts", Child<Layer::Config>(FeedForward::Config(expert)), dims_);
}

Tensor MoE::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims_.input, dims_.input});
  const Gating::Choice choice = (*gating_)(ctx, x);
  const kernels::ExpertGroups groups = kernels::expert_groups(choice.ids, num_experts_);
  ctx.builder().tag(groups.slot, "moe.slot");
  const Tensor rows = kernels::moe_dispatch(x, groups.slot);
  ctx.mark(rows, "moe.rows", {axis::kTokens, dims_.input_axis});
  ctx.put(ExpertRows{groups.offsets});
  const Tensor sorted = (*experts_)(ctx, rows);
  Tensor y = kernels::moe_combine(sorted, groups.slot, choice.weights);
  if (shared_) y = kernels::add(y, (*shared_)(ctx, x));
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

void add_moe_classes(ClassTable& classes) { classes.add<MoE::Config>(); }

}  // namespace meshloom::layers
