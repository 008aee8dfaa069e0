#include "trainer/interop/families/overrides.h"

#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "layers/block/heterogeneous_stack.h"
#include "layers/config/tree.h"

namespace meshloom::trainer {
namespace {

// The shortest pattern for these layers.
void choose(layers::LayerOverride& change, const std::vector<bool>& chosen) {
  const auto count = static_cast<std::int64_t>(chosen.size());
  change.first = std::find(chosen.begin(), chosen.end(), true) - chosen.begin();
  for (change.every = 1; change.every <= count; ++change.every) {
    std::int64_t i = 0;
    while (i < count && change.applies_to(i) == chosen[static_cast<std::size_t>(i)]) ++i;
    if (i == count) return;
  }
  change.first = 0;
  change.every = 1;
  for (std::int64_t i = 0; i < count; ++i)
    if (chosen[static_cast<std::size_t>(i)]) change.layers.push_back(i);
}

}  // namespace

std::vector<layers::Child<layers::Layer::Config>> layers_of(const layers::Config& model) {
  const auto* lm = dynamic_cast<const layers::CausalLM::Config*>(&model);
  const auto* stack = lm ? lm->decoder->stack.as<layers::Stack::Config>() : nullptr;
  if (!stack) throw Error("decoder.stack", "must be a Stack", layers::get(model, "decoder.stack"));
  std::vector<layers::Child<layers::Layer::Config>> all;
  for (std::int64_t i = 0; i < stack->num_layers; ++i) all.push_back(stack->layer_at(i));
  return all;
}

void override_layers(layers::CausalLM::Config& model, const std::string& where,
                     layers::Child<layers::Config> with, const std::vector<bool>& chosen) {
  layers::Child<layers::Layer::Config>& stack = model.decoder->stack;
  if (!stack.as<layers::HeterogeneousStack::Config>()) {
    layers::HeterogeneousStack::Config varied;
    static_cast<layers::Stack::Config&>(varied) = *stack.as<layers::Stack::Config>();
    stack = varied;
  }
  layers::LayerOverride change;
  change.where = where;
  change.with = std::move(with);
  choose(change, chosen);
  stack.as<layers::HeterogeneousStack::Config>()->overrides.push_back(change);
}

}  // namespace meshloom::trainer
