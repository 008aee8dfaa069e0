#include "trainer/interop/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/input/json.h"
#include "trainer/interop/family.h"
#include "trainer/interop/json_fields.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

const std::string kPositions = kLayer + "attention.positions";
const std::string kLimit = "decoder.positions.max_length";
constexpr const char* kOriginal = "original_max_position_embeddings";

// What the factors mscale and mscale_all_dim of DeepSeek's configs come to.
double growth(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

std::string yarn_text(const Json& scaling, const std::string& here, std::int64_t limit) {
  const Json* length = json_field(scaling, kOriginal);
  const std::int64_t original = length ? json_length(*length, kOriginal, here) : limit;
  const double factor =
      json_number(scaling, "factor", here, static_cast<double>(limit) / static_cast<double>(original));
  std::string text =
      fmt::format(" factor={} original_length={} beta_fast={} beta_slow={}", factor, original,
                  json_number(scaling, "beta_fast", here, 32), json_number(scaling, "beta_slow", here, 1));
  if (const Json* whole = json_field(scaling, "truncate"); whole && *whole == false)
    text += " whole_pairs=false";
  if (json_field(scaling, "attention_factor"))
    text += fmt::format(" attention_factor={}", json_number(scaling, "attention_factor", here));
  else if (json_field(scaling, "mscale") && json_field(scaling, "mscale_all_dim"))
    text +=
        fmt::format(" attention_factor={}", growth(factor, json_number(scaling, "mscale", here)) /
                                                growth(factor, json_number(scaling, "mscale_all_dim", here)));
  return text;
}

std::string llama3_text(const Json& scaling, const std::string& here) {
  const Json* original = json_field(scaling, kOriginal);
  if (!original) throw Error(here + "." + kOriginal, "must be there", "none");
  return fmt::format(" factor={} low_frequency_factor={} high_frequency_factor={} original_length={}",
                     json_number(scaling, "factor", here), json_number(scaling, "low_freq_factor", here),
                     json_number(scaling, "high_freq_factor", here), json_length(*original, kOriginal, here));
}

// The positions, but for theta.
std::string positions_text(const std::string& type, const Json& scaling, const std::string& here,
                           std::int64_t limit, double theta) {
  const std::string base = fmt::format("{{theta={}", theta);
  if (type == "default") return "RotaryPosition" + base + "}";
  if (type == "linear")
    return fmt::format("LinearRotaryPosition{} factor={}}}", base, json_number(scaling, "factor", here));
  if (type == "yarn") return "YarnRotaryPosition" + base + yarn_text(scaling, here, limit) + "}";
  if (type == "llama3") return "ScaledRotaryPosition" + base + llama3_text(scaling, here) + "}";
  throw Error(here + ".rope_type",
              "must be default, linear, yarn or llama3; what changes with the sequence is not built",
              shown(type));
}

}  // namespace

bool is_rotary_field(const std::string& name) {
  static const char* const kNames[] = {
      "max_position_embeddings", "rope_theta",          "rope_scaling", "rope_parameters",
      "partial_rotary_factor",   "cache_implementation"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::int64_t read_rotary(const Json& json, const std::string& where, layers::Config& model,
                         const layers::ClassTable& classes) {
  const Json* longest = json_field(json, "max_position_embeddings");
  if (!longest) throw Error(where + ", field max_position_embeddings", "must be there", "none");
  const std::int64_t limit = json_length(*longest, "max_position_embeddings", where);
  layers::set(model, kLimit, std::to_string(limit), classes);

  const char* nested = json_field(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* scaling = json_field(json, nested);
  const std::string here = where + ", field " + nested;
  if (scaling && !scaling->is_object()) throw Error(here, "must be an object or null", shown_json(*scaling));
  static const Json kNone = Json::object();
  if (!scaling) scaling = &kNone;
  for (const Json* place : {scaling, &json})
    if (const Json* part = json_field(*place, "partial_rotary_factor"); part && *part != 1.0)
      throw Error((place == scaling ? here + "." : where + ", field ") + "partial_rotary_factor", "must be 1",
                  shown_json(*part));
  const double theta = json_field(*scaling, "rope_theta") ? json_number(*scaling, "rope_theta", where)
                                                          : json_number(json, "rope_theta", where, 10000.0);
  std::string type;
  for (const char* name : {"rope_type", "type"})
    if (const Json* value = json_field(*scaling, name)) {
      if (!value->is_string()) throw Error(here + "." + name, "must be text", shown_json(*value));
      type = value->get<std::string>();
      break;
    }
  if (type.empty())
    for (const auto& [name, value] : scaling->items())
      if (name != "rope_theta" && name != "partial_rotary_factor" && !value.is_null())
        throw Error(here + ".rope_type", "must be there", "none, beside " + shown(name));
  if (type.empty()) type = "default";
  layers::set(model, kPositions, positions_text(type, *scaling, here, limit, theta), classes);
  return limit;
}

void write_rotary(const layers::Config& model, std::int64_t sequence, nlohmann::ordered_json& json) {
  const std::string limit =
      layers::get(model, "decoder.positions") == "none" ? "" : layers::get(model, kLimit);
  json["max_position_embeddings"] = limit.empty() ? sequence : std::stoll(limit);
  const auto text = [&](const std::string& name) { return layers::get(model, kPositions + "." + name); };
  const auto value = [&](const std::string& name) { return std::stod(text(name)); };
  json["rope_theta"] = value("theta");
  const std::string positions = layers::get(model, kPositions);
  if (positions.starts_with("LinearRotaryPosition"))
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", value("factor")}};
  if (positions.starts_with("ScaledRotaryPosition"))
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", value("factor")},
                            {"low_freq_factor", value("low_frequency_factor")},
                            {"high_freq_factor", value("high_frequency_factor")},
                            {kOriginal, std::stoll(text("original_length"))}};
  if (positions.starts_with("YarnRotaryPosition")) {
    json["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", value("factor")},
                            {"beta_fast", value("beta_fast")},
                            {"beta_slow", value("beta_slow")}};
    // Some versions of transformers take max_position_embeddings over this for the factor, if it is there.
    if (const std::int64_t original = std::stoll(text("original_length")); original != json["max_position_embeddings"])
      json["rope_scaling"][kOriginal] = original;
    if (text("whole_pairs") == "false") json["rope_scaling"]["truncate"] = false;
    if (text("attention_factor") != "none")
      json["rope_scaling"]["attention_factor"] = value("attention_factor");
  }
}

}  // namespace meshloom::trainer
