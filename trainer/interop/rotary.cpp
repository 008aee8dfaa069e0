#include "trainer/interop/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/input/json.h"
#include "trainer/interop/family.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostLength = 1 << 24;
constexpr std::int64_t kDefaultWindow = 4096;      // of Mistral where its config.json has no such field
constexpr std::int64_t kDefaultWindowLayers = 28;  // max_window_layers of the Qwens, likewise
const std::string kPositions = kLayer + "attention.positions";
const std::string kMask = kLayer + "attention.mask";
const std::string kLimit = "decoder.positions.max_length";

// Null counts as absent.
const Json* field(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

double number(const Json& json, const char* name, const std::string& where, std::optional<double> absent = {}) {
  const Json* value = field(json, name);
  if (!value && absent) return *absent;
  if (!value) throw Error(where + ", field " + name, "must be there", "none");
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
    throw Error(where + ", field " + name, "must be a number above 0", shown_json(*value));
  return value->get<double>();
}

std::int64_t length(const Json& value, const char* name, const std::string& where) {
  std::int64_t size = 0;
  if (!natural(value, size) || size < 1 || size > kMostLength)
    throw Error(where + ", field " + name, "must be an integer from 1 to 2^24", shown_json(value));
  return size;
}

// The window that attention is limited to, or 0; and whether it is in every layer, where there is one.
struct Window {
  std::int64_t size = 0;
  bool everywhere = true;
};
Window window(const Json& json, const std::string& where) {
  const std::string family = json.value("model_type", "");
  Window found;
  if (family.starts_with("qwen")) {
    const Json *use = field(json, "use_sliding_window"), *depth = field(json, "num_hidden_layers"),
               *without = field(json, "max_window_layers");
    if (!use || *use == false) return {};
    // Layers from max_window_layers on have the window.
    std::int64_t count = 0, first = kDefaultWindowLayers;
    if (without && (!without->is_number_integer() || without->get<std::int64_t>() < 0))
      throw Error(where + ", field max_window_layers", "must be an integer that is not negative", shown_json(*without));
    if (without) first = without->get<std::int64_t>();
    if (depth && natural(*depth, count) && first >= count) return {};
    found.everywhere = first == 0;
  }
  if (const Json* size = field(json, "sliding_window"))
    found.size = length(*size, "sliding_window", where);
  else if (!json.contains("sliding_window") && family == "mistral")
    found.size = kDefaultWindow;
  return found;
}

std::string text_of(double value) { return fmt::format("{}", value); }

}  // namespace

bool is_rotary_field(const std::string& name) {
  static const char* const kNames[] = {"max_position_embeddings", "rope_theta",         "rope_scaling",
                                       "rope_parameters",         "sliding_window",     "use_sliding_window",
                                       "max_window_layers",       "layer_types",        "cache_implementation"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void read_rotary(const Json& json, const std::string& where, layers::Config& model,
                 const layers::ClassTable& classes, const std::function<void(const std::string&)>& note) {
  const Json* longest = field(json, "max_position_embeddings");
  if (!longest) throw Error(where + ", field max_position_embeddings", "must be there", "none");
  std::int64_t limit = length(*longest, "max_position_embeddings", where);
  const Window w = window(json, where);
  if (w.size > 0 && w.size < limit && w.everywhere)
    layers::set(model, kMask, fmt::format("SlidingWindow{{window={}}}", w.size), classes);
  if (w.size > 0 && w.size < limit && !w.everywhere) {
    note(fmt::format("{}, field max_window_layers: attention by windows in some of the layers only is not built; the "
                     "model takes sequences up to its window of {}, where it makes no difference",
                     where, w.size));
    limit = w.size;
  }
  layers::set(model, kLimit, std::to_string(limit), classes);

  const char* nested = field(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* scaling = field(json, nested);
  if (scaling && !scaling->is_object())
    throw Error(where + ", field " + nested, "must be an object or null", shown_json(*scaling));
  const double theta = scaling && field(*scaling, "rope_theta") ? number(*scaling, "rope_theta", where)
                                                               : number(json, "rope_theta", where, 10000.0);
  if (scaling && field(*scaling, "partial_rotary_factor") && *field(*scaling, "partial_rotary_factor") != 1.0)
    throw Error(where + ", field " + nested + ".partial_rotary_factor", "must be 1",
                shown_json((*scaling)["partial_rotary_factor"]));
  std::string type = "default";
  if (scaling)
    for (const char* name : {"rope_type", "type"})
      if (const Json* value = field(*scaling, name)) {
        if (!value->is_string())
          throw Error(where + ", field " + nested + "." + name, "must be text", shown_json(*value));
        type = value->get<std::string>();
        break;
      }
  if (type == "default") {
    layers::set(model, kPositions, "RotaryPosition{theta=" + text_of(theta) + "}", classes);
    return;
  }
  const std::string here = where + ", field " + nested;
  if (type != "llama3")
    throw Error(here + ".rope_type", "must be default or llama3; other scalings are not built yet", shown(type));
  const Json* original = field(*scaling, "original_max_position_embeddings");
  if (!original) throw Error(here + ".original_max_position_embeddings", "must be there", "none");
  layers::set(model, kPositions,
              fmt::format("ScaledRotaryPosition{{theta={} factor={} low_frequency_factor={} high_frequency_factor={} "
                          "original_length={}}}",
                          theta, number(*scaling, "factor", here), number(*scaling, "low_freq_factor", here),
                          number(*scaling, "high_freq_factor", here),
                          length(*original, "original_max_position_embeddings", here)),
              classes);
}

void write_rotary(const layers::Config& model, std::int64_t sequence, nlohmann::ordered_json& json) {
  const std::string limit = layers::get(model, "decoder.positions") == "none" ? "" : layers::get(model, kLimit);
  json["max_position_embeddings"] = limit.empty() ? sequence : std::stoll(limit);
  // Where there is no window it is null, as an absent one is not for all of them.
  const std::string family = json.value("model_type", "");
  const bool windowed = layers::get(model, kMask).starts_with("SlidingWindow");
  if (windowed && family.starts_with("qwen")) {
    json["use_sliding_window"] = true;
    json["max_window_layers"] = 0;
  }
  if (windowed && family != "llama")
    json["sliding_window"] = std::stoll(layers::get(model, kMask + ".window"));
  else if (family == "mistral")
    json["sliding_window"] = nullptr;
  const auto value = [&](const std::string& name) { return std::stod(layers::get(model, kPositions + "." + name)); };
  json["rope_theta"] = value("theta");
  if (layers::get(model, kPositions).starts_with("ScaledRotaryPosition"))
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", value("factor")},
                            {"low_freq_factor", value("low_frequency_factor")},
                            {"high_freq_factor", value("high_frequency_factor")},
                            {"original_max_position_embeddings", static_cast<std::int64_t>(value("original_length"))}};
}

}  // namespace meshloom::trainer
