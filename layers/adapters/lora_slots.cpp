#include "layers/adapters/lora_slots.h"

#include "kernels/gather_matmul/gather_matmul.h"
#include "layers/core/experts.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void LoraSlots::Config::fields(FieldVisitor& v) {
  v("base", base, {"The layer that is adapted.", means("layer inside a wrapper")});
  v("slots", slots, {"How many adapters there is room for.", at_least(1)});
  v("rank", rank, {"The largest rank of an adapter.", at_least(1)});
}

std::unique_ptr<Module> LoraSlots::Config::build(const Place& place) const {
  return std::make_unique<LoraSlots>(*this, place);
}

LoraSlots::LoraSlots(const Config& config, const Place& place)
    : Adapter(config, place), slots_(config.slots), rank_(config.rank) {
  if (slots_ < 1 || rank_ < 1)
    fail("slots and rank must be at least 1", std::to_string(slots_) + " and " + std::to_string(rank_));
  if (inherited<Experts>())
    fail("slots are not built for the experts of a mixture, whose rows are sorted", "a layer of an expert");
}

Tensor LoraSlots::adapt(Context& ctx, Tensor x, Tensor y) {
  const InferenceStep* step = ctx.find<InferenceStep>();
  if (!step) return y;
  const SelectedTokens* selected = ctx.find<SelectedTokens>();
  const std::int64_t tokens = (selected ? selected->rows : step->slots).dim(0);
  if (x.dim(0) != tokens)
    fail("must be called with a row of each token of the step, " + std::to_string(tokens),
         std::to_string(x.dim(0)));
  const Tensor indices = ctx.step_input(selected ? kRowsInput : kInput, {kernels::DType::i32, {tokens}});
  const auto kept = [&](const char* name, kernels::Shape shape) {
    const std::string whole = join(path(), name);  // a layer that is called twice has one
    return ctx.shared(whole, [&](kernels::Builder& builder) {
      return builder.input(whole, {step->dtype, std::move(shape)}, kernels::Role::cache);
    });
  };
  const Tensor a = kept(kA, {slots_, rank_, dims_.input}), b = kept(kB, {slots_, rank_, dims_.output});
  return kernels::gather_matmul(kernels::gather_matmul(x, a, indices, {.trans_b = true}), b, indices,
                                {.residual = y});
}

Merge LoraSlots::merge() const {
  const std::string weight = merged_weight();
  return {weight, {dims_.output, dims_.input}, {weight}, [](const auto& values) { return values[0]; }};
}

void add_lora_slots_classes(ClassTable& classes) { classes.add<LoraSlots::Config>(); }

}  // namespace meshloom::layers
