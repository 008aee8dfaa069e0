#include "layers/block/heterogeneous_stack.h"

#include <algorithm>

#include "layers/config/select.h"

namespace meshloom::layers {

void LayerOverride::fields(FieldVisitor& v) {
  v("where", where, {"Pattern over paths below a layer, such as \"attention.mask\"; it must match a node."});
  v("with", with, {"What replaces the nodes at those paths."});
  v("first", first, {"The first layer that changes, counted from 0.", at_least(0)});
  v("every", every, {"The distance between layers that change, starting with `first`.", at_least(1)});
  v("layers", layers,
    {"The layers that change, counted from 0; []: `first` and `every` say which.", at_least(0)});
}

bool LayerOverride::applies_to(std::int64_t layer) const {
  if (!layers.empty()) return std::find(layers.begin(), layers.end(), layer) != layers.end();
  return layer >= first && every > 0 && (layer - first) % every == 0;
}

void HeterogeneousStack::Config::fields(FieldVisitor& v) {
  Stack::Config::fields(v);
  v("overrides", overrides,
    {"What differs in some of the layers; the last one for a node of a layer counts."});
}

std::unique_ptr<Module> HeterogeneousStack::Config::build(const Place& place) const {
  return std::make_unique<HeterogeneousStack>(*this, place);
}

Child<Layer::Config> HeterogeneousStack::Config::layer_at(std::int64_t index) const {
  Child<Layer::Config> made = layer;
  for (const Child<LayerOverride>& change : overrides)
    if (change->applies_to(index))
      replace_at(*made, select(*made, {.where = change->where.get()}, {}),
                 [&](const layers::Config&, const std::string&) { return change->with->clone(); });
  return made;
}

HeterogeneousStack::HeterogeneousStack(const Config& config, const Place& place) : Stack(config, place) {
  for (const Child<LayerOverride>& change : config.overrides) {
    const std::string name = "the override of '" + change->where.get() + "' ";
    if (change->first < 0 || change->every < 1)
      fail(name + "must have a first of at least 0 and an every of at least 1",
           std::to_string(change->first) + " and " + std::to_string(change->every));
    for (const std::int64_t layer : change->layers)
      if (layer < 0 || layer >= config.num_layers)
        fail(name + "must name layers from 0 to " + std::to_string(config.num_layers - 1),
             std::to_string(layer));
    if (change->layers.empty() && change->first >= config.num_layers)
      fail(name + "must change a layer",
           "first = " + std::to_string(change->first) + " of " + std::to_string(config.num_layers));
  }
}

Tensor HeterogeneousStack::forward(Context& ctx, Tensor x) {
  ctx.put(SharedKV{std::make_shared<SharedKV::KeysValues>()});
  return Stack::forward(ctx, x);
}

void add_heterogeneous_stack_classes(ClassTable& classes) {
  classes.add<LayerOverride>();
  classes.add<HeterogeneousStack::Config>();
}

}  // namespace meshloom::layers
