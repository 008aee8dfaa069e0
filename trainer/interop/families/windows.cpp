#include "trainer/interop/families/windows.h"

#include <algorithm>
#include <vector>

#include "hal/error.h"
#include "layers/attention/mask.h"
#include "layers/config/tree.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/overrides.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

using Layers = WindowRule::Layers;

// max_window_layers of the Qwens, where config.json has no such field.
constexpr std::int64_t kMaxWindowLayers = 28;
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// Which layers have windows where layer_types does not say; `boundary` is max_window_layers.
std::vector<bool> layers_by_rule(Layers rule, std::size_t count, std::int64_t boundary) {
  std::vector<bool> windowed(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool even = i % 2 == 0, below = static_cast<std::int64_t>(i) < boundary;
    windowed[i] = rule == Layers::all || (rule == Layers::even && even) ||
                  (rule == Layers::from_max_window && !below) ||
                  (rule == Layers::even_to_max_window && even && below);
  }
  return windowed;
}

std::vector<bool> layers_by_type(const Json& types, std::size_t count, const std::string& where) {
  const std::string here = where + ", field layer_types";
  if (!types.is_array() || types.size() != count)
    throw Error(here, "must be a list of " + std::to_string(count) + ", one for each layer",
                shown_json(types));
  std::vector<bool> windowed;
  for (const Json& type : types) {
    if (type != kSliding && type != kFull && type != "attention")  // an older name of full_attention
      throw Error(here, std::string("must hold ") + kSliding + " or " + kFull, shown_json(type));
    windowed.push_back(type == kSliding);
  }
  return windowed;
}

std::int64_t max_window_layers(const WindowRule& rule, const Json& json, const std::string& where) {
  const auto it = json.find("max_window_layers");
  const bool is_read = rule.layers == Layers::from_max_window || rule.layers == Layers::even_to_max_window;
  if (it == json.end() || !is_read) return kMaxWindowLayers;
  if (!it->is_number_integer() || it->get<std::int64_t>() < 0)
    throw Error(where + ", field max_window_layers", "must be an integer that is not negative",
                shown_json(*it));
  return it->get<std::int64_t>();
}

bool use_sliding_window(const Json& json, const std::string& where) {
  const auto it = json.find("use_sliding_window");
  if (it == json.end()) return false;
  if (!it->is_boolean())
    throw Error(where + ", field use_sliding_window", "must be true or false", shown_json(*it));
  return it->get<bool>();
}

// Its size, or 0 for no window.
std::int64_t window_size(const WindowRule& rule, const Json& json, const std::string& where) {
  const auto it = json.find("sliding_window");
  if (it == json.end()) return rule.absent;
  if (it->is_null() && rule.null_is_none) return 0;
  return json_length(*it, "sliding_window", where);
}

}  // namespace

bool is_window_field(const std::string& name) {
  static const char* const kNames[] = {"sliding_window", "use_sliding_window", "max_window_layers",
                                       "layer_types"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void read_windows(const Json& json, const std::string& where, const Family& family, std::int64_t limit,
                  layers::CausalLM::Config& model, const layers::ClassTable& classes, const Note& note) {
  const WindowRule& rule = family.windows;
  const auto count = static_cast<std::size_t>(std::stoll(layers::get(model, "decoder.stack.num_layers")));
  if (rule.layers == Layers::none) {
    const auto say = [&](const char* name, const Json& value) {
      note(where + ", field " + name + ": models of type " + family.name +
           " have no windows in transformers, and none here; found " + shown_json(value));
    };
    if (const Json* size = json_field(json, "sliding_window")) say("sliding_window", *size);
    if (const Json* types = json_field(json, "layer_types");
        types && layers_by_type(*types, count, where) != std::vector<bool>(count))
      say("layer_types", *types);
    return;
  }
  const bool used = !rule.switched || use_sliding_window(json, where);
  const std::int64_t window = used ? window_size(rule, json, where) : 0;
  const Json* types = json_field(json, "layer_types");
  std::vector<bool> windowed = layers_by_rule(rule.layers, count, max_window_layers(rule, json, where));
  if (window == 0) windowed.assign(count, false);
  if (types) {
    const std::vector<bool> said = layers_by_type(*types, count, where);
    if (rule.typed && window == 0 && said != windowed)
      throw Error(where + ", field layer_types",
                  std::string("must hold no ") + kSliding + " where there is no window" +
                      (rule.switched ? " (use_sliding_window, sliding_window)" : ""),
                  shown_json(*types));
    if (!rule.typed && said != windowed)
      note(where + ", field layer_types: transformers does not read it in models of type " + family.name +
           ", and neither is it read here; found " + shown_json(*types));
    if (rule.typed) windowed = said;
  }
  if (window == 0 || window >= limit) return;
  const auto with = std::count(windowed.begin(), windowed.end(), true);
  layers::SlidingWindow mask;
  mask.window = window;
  if (with == static_cast<std::ptrdiff_t>(count))
    layers::set(model, kLayer + "attention.mask", layers::print(mask), classes);
  else if (with > 0)
    override_layers(model, "attention.mask", layers::Child<layers::Config>(mask), windowed);
}

void write_windows(const layers::Config& model, const Family& family, nlohmann::ordered_json& json) {
  const WindowRule& rule = family.windows;
  const auto* lm = dynamic_cast<const layers::CausalLM::Config*>(&model);
  const auto* stack = lm ? lm->decoder->stack.as<layers::Stack::Config>() : nullptr;
  if (!stack) throw Error("decoder.stack", "must be a Stack", layers::get(model, "decoder.stack"));
  std::vector<bool> windowed;
  std::string window;
  for (std::int64_t i = 0; i < stack->num_layers; ++i) {
    const layers::Child<layers::Layer::Config> layer = stack->layer_at(i);
    windowed.push_back(layers::get(*layer, "attention.mask").starts_with("SlidingWindow"));
    if (!windowed.back()) continue;
    const std::string size = layers::get(*layer, "attention.mask.window");
    if (!window.empty() && window != size)
      throw Error("decoder.stack", "must have windows of one size", window + " and " + size);
    window = size;
  }
  if (rule.layers == Layers::none) return;  // a window has no place, and the model that is read back shows it
  if (window.empty()) {
    // An absent field would be a window; where null is refused, one that is as long as any sequence is none.
    if (!rule.switched && rule.null_is_none) json["sliding_window"] = nullptr;
    if (!rule.switched && !rule.null_is_none) json["sliding_window"] = json["max_position_embeddings"];
    return;
  }
  json["sliding_window"] = std::stoll(window);
  if (rule.switched) json["use_sliding_window"] = true;
  if (!rule.typed) return;
  const std::int64_t first = std::find(windowed.begin(), windowed.end(), true) - windowed.begin();
  if (rule.switched) json["max_window_layers"] = first;
  // Older versions of transformers do not know it, so it is only there where it says more than the fields
  // they know.
  if (windowed == layers_by_rule(rule.layers, windowed.size(), first)) return;
  json["layer_types"] = nlohmann::ordered_json::array();
  for (const bool with : windowed) json["layer_types"].push_back(with ? kSliding : kFull);
}

}  // namespace meshloom::trainer
