#include "trainer/inference/lora_adapter.h"

#include <algorithm>

#include "layers/adapters/lora_slots.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "layers/moe/moe.h"

namespace meshloom::trainer {

void add_lora_slots(TrainerConfig& config, std::int64_t slots, std::int64_t rank,
                    const layers::ClassTable& classes) {
  std::vector<std::string> mixtures;
  layers::visit(*config.model, [&](const std::string& path, const layers::Config& node) {
    if (dynamic_cast<const layers::MoE::Config*>(&node)) mixtures.push_back(path + ".");
  });
  std::vector<std::string> paths = layers::select(*config.model, {.of_class = "Linear"}, classes);
  std::erase_if(paths, [&](const std::string& path) {
    return std::any_of(mixtures.begin(), mixtures.end(),
                       [&](const std::string& mixture) { return path.starts_with(mixture); });
  });
  if (paths.empty())
    throw Error("adapters", "need a model with a Linear outside of mixtures of experts", "none");
  layers::replace_at(*config.model, paths, [&](const layers::Config& old, const std::string&) {
    auto wrapper = std::make_unique<layers::LoraSlots::Config>();
    wrapper->slots = slots;
    wrapper->rank = rank;
    wrapper->base.reset(old.clone());
    return wrapper;
  });
}

LoraSlotsOfPlan lora_slots_of(const Plan& plan) {
  LoraSlotsOfPlan found;
  const std::string a_end = std::string("/") + layers::LoraSlots::kA;
  for (const auto& [name, a] : plan.persistent_types) {
    if (!name.ends_with(a_end)) continue;
    const std::string path = name.substr(0, name.size() - a_end.size());
    const kernels::TensorType& b = plan.persistent_types.at(layers::join(path, layers::LoraSlots::kB));
    found.slots = a.dim(0);
    found.rank = a.dim(1);
    found.layers[path] = {a.dim(2), b.dim(2)};
    found.bytes += a.bytes() + b.bytes();
  }
  return found;
}

void check_fits(const LoraAdapter& adapter, const LoraSlotsOfPlan& slots, const std::string& where) {
  for (const auto& [path, layer] : adapter.layers) {
    const std::string place = where + ", layer '" + path + "'";
    const auto found = slots.layers.find(path);
    if (found == slots.layers.end()) throw Error(place, "must be one that the server has slots for");
    if (layer.rank < 1 || layer.rank > slots.rank)
      throw Error(place,
                  "the rank must be from 1 to that of the server's slots, " + std::to_string(slots.rank) +
                      " (--max-lora-rank)",
                  std::to_string(layer.rank));
    const auto of = [&](std::int64_t size) { return static_cast<std::size_t>(layer.rank * size); };
    if (layer.a.size() != of(found->second.input) || layer.b.size() != of(found->second.output))
      throw Error(place,
                  "must be of " + std::to_string(found->second.input) + " inputs and " +
                      std::to_string(found->second.output) + " outputs",
                  std::to_string(layer.a.size()) + " and " + std::to_string(layer.b.size()) +
                      " numbers of rank " + std::to_string(layer.rank));
  }
}

void write_adapter(Session& session, const LoraSlotsOfPlan& slots, std::int32_t slot,
                   const LoraAdapter& adapter) {
  check_fits(adapter, slots, "adapter");
  if (slot < 0 || slot >= slots.slots)
    throw Error("adapter", "the slot must be below " + std::to_string(slots.slots), std::to_string(slot));
  for (const auto& [path, size] : slots.layers) {
    std::vector<float> a(static_cast<std::size_t>(slots.rank * size.input)),
        b(static_cast<std::size_t>(size.output * slots.rank));
    if (const auto found = adapter.layers.find(path); found != adapter.layers.end()) {
      const LoraAdapter::Layer& layer = found->second;
      std::copy(layer.a.begin(), layer.a.end(), a.begin());
      for (std::int64_t o = 0; o < size.output; ++o)
        for (std::int64_t r = 0; r < layer.rank; ++r)
          b[static_cast<std::size_t>(r * size.output + o)] =
              layer.b[static_cast<std::size_t>(o * layer.rank + r)];
    }
    session.write_elements(layers::join(path, layers::LoraSlots::kA),
                           slot * static_cast<std::int64_t>(a.size()), a);
    session.write_elements(layers::join(path, layers::LoraSlots::kB),
                           slot * static_cast<std::int64_t>(b.size()), b);
  }
}

}  // namespace meshloom::trainer
