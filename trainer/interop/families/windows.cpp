#include "trainer/interop/families/windows.h"

#include <algorithm>
#include <vector>

#include "hal/error.h"
#include "layers/attention/mask.h"
#include "layers/config/tree.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/no_rope.h"
#include "trainer/interop/families/overrides.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

using Layers = WindowPattern::Layers;

constexpr const char* kPattern = "sliding_window_pattern";
constexpr std::int64_t kAbsentPattern = 6;

// The layers with windows when layer_types does not say; `boundary` is max_window_layers or sliding_window_pattern.
std::vector<bool> layers_by_pattern(Layers pattern, const layers::Config& model, std::size_t count,
                                    std::int64_t boundary) {
  if (pattern == Layers::without_rope) return layers_without_rope(model);
  std::vector<bool> windowed(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool even = i % 2 == 0, below = static_cast<std::int64_t>(i) < boundary;
    windowed[i] = pattern == Layers::all || (pattern == Layers::even && even) ||
                  (pattern == Layers::from_max_window && !below) ||
                  (pattern == Layers::even_to_max_window && even && below) ||
                  (pattern == Layers::all_but_every && (static_cast<std::int64_t>(i) + 1) % boundary != 0);
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

bool reads_max_window_layers(const WindowPattern& pattern) {
  return pattern.layers == Layers::from_max_window || pattern.layers == Layers::even_to_max_window;
}

std::int64_t boundary_of(const WindowPattern& pattern, const Json& json, const std::string& where) {
  if (pattern.layers == Layers::all_but_every)
    return json.contains(kPattern) ? json_length(json[kPattern], kPattern, where) : kAbsentPattern;
  const auto it = json.find("max_window_layers");
  if (it == json.end() || !reads_max_window_layers(pattern)) return pattern.max_window_layers;
  if (!it->is_number_integer() || it->get<std::int64_t>() < 0)
    throw Error(where + ", field max_window_layers", "must be an integer of at least 0", shown_json(*it));
  return it->get<std::int64_t>();
}

bool use_sliding_window(const Json& json, const std::string& where) {
  const auto it = json.find("use_sliding_window");
  if (it == json.end()) return false;
  if (!it->is_boolean())
    throw Error(where + ", field use_sliding_window", "must be true or false", shown_json(*it));
  return it->get<bool>();
}

// The size of the windows, or 0 for none.
std::int64_t window_size(const WindowPattern& pattern, const Json& json, const std::string& where) {
  const auto it = json.find("sliding_window");
  if (it == json.end()) return pattern.absent_size;
  if (it->is_null() && pattern.null_is_none) return 0;
  return json_length(*it, "sliding_window", where);
}

}  // namespace

bool has_window(const layers::Config& layer) {
  return layers::get(layer, "attention.mask").starts_with("SlidingWindow");
}

bool is_window_field(const Family& family, const std::string& name) {
  if (name == kPattern) return family.windows.layers == Layers::all_but_every;
  static const char* const kNames[] = {"sliding_window", "use_sliding_window", "max_window_layers",
                                       "layer_types"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void read_windows(const Json& json, const std::string& where, const Family& family, std::int64_t limit,
                  layers::CausalLM::Config& model, const layers::ClassTable& classes, const Note& note) {
  const WindowPattern& pattern = family.windows;
  const auto count = static_cast<std::size_t>(std::stoll(layers::get(model, "decoder.stack.num_layers")));
  if (pattern.layers == Layers::none) {
    const auto note_ignored = [&](const char* name, const Json& value) {
      note(where + ", field " + name + ": models of type " + family.name +
           " have no windows in transformers, so the field is ignored; found " + shown_json(value));
    };
    if (const Json* size = json_field(json, "sliding_window")) note_ignored("sliding_window", *size);
    if (const Json* types = json_field(json, "layer_types");
        types && layers_by_type(*types, count, where) != std::vector<bool>(count))
      note_ignored("layer_types", *types);
    return;
  }
  const Json* types = json_field(json, "layer_types");
  const bool used = !pattern.needs_use_sliding_window || use_sliding_window(json, where) ||
                    (types && pattern.layer_types_suffice);
  const std::int64_t window = used ? window_size(pattern, json, where) : 0;
  std::vector<bool> windowed =
      layers_by_pattern(pattern.layers, model, count, boundary_of(pattern, json, where));
  if (window == 0) windowed.assign(count, false);
  if (types) {
    const std::vector<bool> stated = layers_by_type(*types, count, where);
    if (pattern.reads_layer_types && window == 0 && stated != windowed)
      throw Error(where + ", field layer_types",
                  std::string("must hold no ") + kSliding + " when there is no window" +
                      (pattern.needs_use_sliding_window ? " (use_sliding_window, sliding_window)" : ""),
                  shown_json(*types));
    if (!pattern.reads_layer_types && stated != windowed)
      note(where + ", field layer_types: transformers does not read it in models of type " + family.name +
           ", so it is ignored; found " + shown_json(*types));
    if (pattern.reads_layer_types) windowed = stated;
  }
  if (window == 0 || (window >= limit && family.local_rope_theta == 0)) return;
  const auto with = std::count(windowed.begin(), windowed.end(), true);
  layers::SlidingWindow mask;
  mask.window = window;
  if (with == 0) return;
  // Where nearly all layers have windows, the others are the exceptions.
  const bool most = pattern.layers == Layers::all_but_every, all = with == static_cast<std::ptrdiff_t>(count);
  if (most || all) layers::set(model, kLayer + "attention.mask", layers::print(mask), classes);
  if (all) return;
  if (most) {
    windowed.flip();
    override_layers(model, "attention.mask", layers::Causal{}, windowed);
  } else {
    override_layers(model, "attention.mask", mask, windowed);
  }
}

void write_windows(const layers::Config& model, const Family& family, nlohmann::ordered_json& json) {
  const WindowPattern& pattern = family.windows;
  std::vector<bool> windowed;
  std::string window;
  for (const layers::Child<layers::Layer::Config>& layer : layers_of(model)) {
    windowed.push_back(has_window(*layer));
    if (!windowed.back()) continue;
    const std::string size = layers::get(*layer, "attention.mask.window");
    if (!window.empty() && window != size)
      throw Error("decoder.stack", "must have windows of one size", window + " and " + size);
    window = size;
  }
  if (pattern.layers == Layers::none)
    return;  // config.json cannot have windows then; reading it back shows that they are lost
  if (window.empty()) {
    // An absent field would mean a window. When null is refused, a window as long as any sequence means none.
    if (!pattern.needs_use_sliding_window && pattern.null_is_none) json["sliding_window"] = nullptr;
    if (!pattern.needs_use_sliding_window && !pattern.null_is_none)
      json["sliding_window"] = json["max_position_embeddings"];
    if (family.local_rope_theta == 0) return;  // otherwise layer_types say more than windows
  } else {
    json["sliding_window"] = std::stoll(window);
    if (pattern.needs_use_sliding_window) json["use_sliding_window"] = true;
  }
  if (!pattern.reads_layer_types) return;
  const std::int64_t first = std::find(windowed.begin(), windowed.end(), true) - windowed.begin();
  if (reads_max_window_layers(pattern)) json["max_window_layers"] = first;
  // Older versions of transformers do not read layer_types, so it is written only when the other fields do
  // not say the same.
  const std::int64_t boundary = pattern.layers == Layers::all_but_every ? kAbsentPattern : first;
  if (windowed == layers_by_pattern(pattern.layers, model, windowed.size(), boundary)) return;
  json["layer_types"] = nlohmann::ordered_json::array();
  for (const bool with : windowed) json["layer_types"].push_back(with ? kSliding : kFull);
}

}  // namespace meshloom::trainer
