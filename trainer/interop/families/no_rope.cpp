#include "trainer/interop/families/no_rope.h"

#include <algorithm>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/position/no_position.h"
#include "trainer/interop/families/family.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/overrides.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr const char *kLayers = "no_rope_layers", *kInterval = "no_rope_layer_interval";
constexpr std::int64_t kAbsentInterval = 4;

}  // namespace

bool is_no_rope_field(const std::string& name) { return name == kLayers || name == kInterval; }

void read_no_rope(const Json& json, const std::string& where, layers::CausalLM::Config& model) {
  const std::int64_t count = model.decoder->stack.as<layers::Stack::Config>()->num_layers,
                     interval = json.contains(kInterval) ? json_length(json[kInterval], kInterval, where)
                                                         : kAbsentInterval;
  std::vector<bool> without;
  for (std::int64_t i = 0; i < count; ++i) without.push_back((i + 1) % interval == 0);
  if (const Json* uses = json_field(json, kLayers)) {  // 1 where a layer has rotary positions
    const std::string here = where + ", field " + kLayers,
                      rule = "must be a list of at least " + std::to_string(count) + " times 0 or 1";
    if (!uses->is_array() || static_cast<std::int64_t>(uses->size()) < count)
      throw Error(here, rule, shown_json(*uses));
    for (std::size_t i = 0; i < without.size(); ++i) {
      const Json& use = (*uses)[i];
      if (use != 0 && use != 1) throw Error(here, rule, shown_json(use));
      without[i] = use == 0;
    }
  }
  if (std::count(without.begin(), without.end(), true) > 0)
    override_layers(model, "attention.positions", layers::NoPosition::Config{}, without);
}

std::vector<bool> layers_without_rope(const layers::Config& model) {
  std::vector<bool> without;
  for (const layers::Child<layers::Layer::Config>& layer : layers_of(model))
    without.push_back(layers::get(*layer, "attention.positions").starts_with("NoPosition"));
  return without;
}

void write_no_rope(const layers::Config& model, nlohmann::ordered_json& json) {
  json[kLayers] = nlohmann::ordered_json::array();
  for (const bool without : layers_without_rope(model)) json[kLayers].push_back(without ? 0 : 1);
}

}  // namespace meshloom::trainer
