#include "layers/block/varied_stack.h"

#include <algorithm>

#include "layers/config/select.h"

namespace meshloom::layers {

void LayerOverride::fields(FieldVisitor& v) {
  v("where", where, {"Pattern over paths below a layer, such as \"attention.mask\"; it must match."});
  v("with", with, {"What stands in those places."});
  v("first", first, {"The first layer that is overridden, counted from 0.", at_least(0)});
  v("every", every, {"From `first` on, one layer out of so many is overridden.", at_least(1)});
  v("layers", layers,
    {"The layers that are overridden, counted from 0, instead of `first` and `every`; []: those two say.",
     at_least(0)});
}

bool LayerOverride::takes(std::int64_t layer) const {
  if (!layers.empty()) return std::find(layers.begin(), layers.end(), layer) != layers.end();
  return layer >= first && every > 0 && (layer - first) % every == 0;
}

void VariedStack::Config::fields(FieldVisitor& v) {
  Stack::Config::fields(v);
  v("overrides", overrides,
    {"What differs in some of the layers; of two for one place of a layer the later counts."});
}

std::unique_ptr<Module> VariedStack::Config::build(const Place& place) const {
  return std::make_unique<VariedStack>(*this, place);
}

Child<Layer::Config> VariedStack::Config::layer_at(std::int64_t index) const {
  Child<Layer::Config> made = layer;
  for (const Child<LayerOverride>& change : overrides)
    if (change->takes(index))
      put_at(*made, select(*made, {.where = change->where.get()}, {}),
             [&](const layers::Config&, const std::string&) { return change->with->clone(); });
  return made;
}

VariedStack::VariedStack(const Config& config, const Place& place) : Stack(config, place) {
  for (const Child<LayerOverride>& change : config.overrides) {
    const std::string name = "the override of '" + change->where.get() + "' ";
    if (change->first < 0 || change->every < 1)
      fail(name + "has a first that is not negative and a positive every",
           std::to_string(change->first) + " and " + std::to_string(change->every));
    for (const std::int64_t layer : change->layers)
      if (layer < 0 || layer >= config.num_layers)
        fail(name + "names layers from 0 to " + std::to_string(config.num_layers - 1), std::to_string(layer));
    if (change->layers.empty() && change->first >= config.num_layers)
      fail(name + "changes a layer",
           "first = " + std::to_string(change->first) + " of " + std::to_string(config.num_layers));
  }
}

Tensor VariedStack::forward(Context& ctx, Tensor x) {
  ctx.put(NewestKeys{std::make_shared<NewestKeys::Pair>()});
  return Stack::forward(ctx, x);
}

void add_varied_stack_classes(ClassTable& classes) {
  classes.add<LayerOverride>();
  classes.add<VariedStack::Config>();
}

}  // namespace meshloom::layers
