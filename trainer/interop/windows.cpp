#include "trainer/interop/windows.h"

#include <algorithm>
#include <vector>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/mask.h"
#include "trainer/input/json.h"
#include "trainer/interop/family.h"
#include "trainer/interop/json_fields.h"
#include "trainer/interop/overrides.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kDefaultWindow = 4096;      // where config.json has no such field
constexpr std::int64_t kDefaultWindowLayers = 28;  // max_window_layers of the Qwens, likewise
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// In which layers a family has windows, when layer_types does not say.
enum class Habit : std::uint8_t { never, all, even, last };
Habit habit_of(const std::string& family) {
  if (family.starts_with("qwen")) return Habit::last;
  if (family == "gemma2") return Habit::even;
  return family == "llama" ? Habit::never : Habit::all;
}

// For the family's habit; `first` is max_window_layers.
std::vector<bool> layers_by_habit(Habit habit, std::size_t count, std::int64_t first) {
  std::vector<bool> windowed(count);
  for (std::size_t i = 0; i < count; ++i)
    windowed[i] = habit == Habit::all || (habit == Habit::even && i % 2 == 0) ||
                  (habit == Habit::last && static_cast<std::int64_t>(i) >= first);
  return windowed;
}

std::vector<bool> layers_by_type(const Json& types, std::size_t count, const std::string& where) {
  const std::string here = where + ", field layer_types";
  if (!types.is_array() || types.size() != count)
    throw Error(here, "must be a list of " + std::to_string(count) + ", one for each layer",
                shown_json(types));
  std::vector<bool> windowed;
  for (const Json& type : types) {
    if (type != kSliding && type != kFull)
      throw Error(here, std::string("must hold ") + kSliding + " or " + kFull, shown_json(type));
    windowed.push_back(type == kSliding);
  }
  return windowed;
}

std::int64_t max_window_layers(const Json& json, const std::string& where) {
  const Json* first = json_field(json, "max_window_layers");
  if (!first) return kDefaultWindowLayers;
  if (!first->is_number_integer() || first->get<std::int64_t>() < 0)
    throw Error(where + ", field max_window_layers", "must be an integer that is not negative",
                shown_json(*first));
  return first->get<std::int64_t>();
}

}  // namespace

bool is_window_field(const std::string& name) {
  static const char* const kNames[] = {"sliding_window", "use_sliding_window", "max_window_layers",
                                       "layer_types"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void read_windows(const Json& json, const std::string& where, std::int64_t limit,
                  layers::CausalLM::Config& model, const layers::ClassTable& classes, const Note& note) {
  const Habit habit = habit_of(json.value("model_type", ""));
  const auto count = static_cast<std::size_t>(std::stoll(layers::get(model, "decoder.stack.num_layers")));
  const Json* size = json_field(json, "sliding_window");
  if (habit == Habit::never) {
    if (size)
      note(where + ", field sliding_window: models of type llama have none in transformers, and none here; found " +
           shown_json(*size));
    return;
  }
  if (habit == Habit::last)
    if (const Json* use = json_field(json, "use_sliding_window"); !use || *use == false) return;
  if (!size && (json.contains("sliding_window") || json.value("model_type", "") == "mixtral")) return;
  const std::int64_t window = size ? json_length(*size, "sliding_window", where) : kDefaultWindow;
  if (window >= limit) return;
  const Json* types = json_field(json, "layer_types");
  const std::vector<bool> windowed =
      types ? layers_by_type(*types, count, where)
            : layers_by_habit(habit, count, habit == Habit::last ? max_window_layers(json, where) : 0);
  const auto with = std::count(windowed.begin(), windowed.end(), true);
  layers::SlidingWindow mask;
  mask.window = window;
  if (with == static_cast<std::ptrdiff_t>(count))
    layers::set(model, kLayer + "attention.mask", layers::print(mask), classes);
  else if (with > 0)
    override_layers(model, "attention.mask", layers::Child<layers::Config>(mask), windowed);
}

void write_windows(const layers::Config& model, nlohmann::ordered_json& json) {
  const std::string family = json.value("model_type", "");
  const Habit habit = habit_of(family);
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
  if (habit == Habit::never) return;  // a window has no place, and the model that is read back shows it
  if (window.empty()) {
    // Not every family takes an absent field for none.
    if (family == "mistral") json["sliding_window"] = nullptr;
    if (family == "gemma2") json["sliding_window"] = json["max_position_embeddings"];
    return;
  }
  json["sliding_window"] = std::stoll(window);
  std::int64_t first = 0;
  if (habit == Habit::last) {
    first = std::find(windowed.begin(), windowed.end(), true) - windowed.begin();
    json["use_sliding_window"] = true;
    json["max_window_layers"] = first;
  }
  // Only newer versions of transformers read it, and of these families only where it is not what the others
  // do anyway.
  if (windowed == layers_by_habit(habit, windowed.size(), first) || habit == Habit::all) return;
  json["layer_types"] = nlohmann::ordered_json::array();
  for (const bool with : windowed) json["layer_types"].push_back(with ? kSliding : kFull);
}

}  // namespace meshloom::trainer
