#include "trainer/interop/families/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/longrope.h"
#include "trainer/interop/families/overrides.h"
#include "trainer/interop/families/windows.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

const std::string kPositions = kLayer + "attention.positions";
const std::string kLimit = "decoder.positions.max_length";
constexpr const char* kLocalTheta = "rope_local_base_freq";

// A field that is used only when it is true in Python: neither absent nor null nor 0.
std::optional<double> number_if_true(const Json& json, const char* name, const std::string& where) {
  const Json* value = json_field(json, name);
  if (!value || (value->is_number() && *value == 0)) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    throw Error(where + "." + name, "must be a number", shown_json(*value));
  return value->get<double>();
}

// The attention factor that results from mscale and mscale_all_dim of DeepSeek's configs.
double growth(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

// The length that the model was first trained with; a field beside rope_parameters has precedence over one in
// it.
std::int64_t original_length(const Json& json, const Json& scaling, const std::string& where,
                             const std::string& here, std::int64_t limit) {
  if (json.contains(kOriginal)) return json_length(json[kOriginal], kOriginal, where);
  return scaling.contains(kOriginal) ? json_length(scaling[kOriginal], kOriginal, here) : limit;
}

std::string yarn_text(const Json& scaling, const std::string& here, std::int64_t original,
                      std::int64_t limit) {
  if (!scaling.contains("factor")) throw Error(here + ".factor", "must be present", "none");
  const double factor =
      json_number(scaling, "factor", here, static_cast<double>(limit) / static_cast<double>(original));
  std::string text = fmt::format(" factor={} original_length={} beta_fast={} beta_slow={}", factor, original,
                                 number_if_true(scaling, "beta_fast", here).value_or(32),
                                 number_if_true(scaling, "beta_slow", here).value_or(1));
  if (const auto whole = scaling.find("truncate"); whole != scaling.end()) {
    if (!whole->is_boolean() && !whole->is_null())
      throw Error(here + ".truncate", "must be true, false or null", shown_json(*whole));
    if (*whole != true) text += " truncate=false";
  }
  const auto mscale = number_if_true(scaling, "mscale", here),
             all = number_if_true(scaling, "mscale_all_dim", here);
  if (json_field(scaling, "attention_factor"))
    text += fmt::format(" attention_factor={}", json_number(scaling, "attention_factor", here));
  else if (mscale && all)
    text += fmt::format(" attention_factor={}", growth(factor, *mscale) / growth(factor, *all));
  return text;
}

std::string llama3_text(const Json& scaling, const std::string& here, std::int64_t original) {
  return fmt::format(" factor={} low_frequency_factor={} high_frequency_factor={} original_length={}",
                     json_number(scaling, "factor", here), json_number(scaling, "low_freq_factor", here),
                     json_number(scaling, "high_freq_factor", here), original);
}

// Fields of other rope_types are ignored, as in transformers; fields that no rope_type has are refused.
void check_names(const Json& scaling, const std::string& here) {
  static const std::set<std::string> kNames{
      "rope_type",        "type",       "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
      "high_freq_factor", "beta_fast",  "beta_slow",  "attention_factor",      "mscale", "mscale_all_dim",
      "truncate",         kOriginal,
      "finetuned",  // written by the first YaRN models
      "short_factor",     "long_factor"};
  for (const auto& [name, value] : scaling.items())
    if (!value.is_null() && !kNames.count(name))
      throw Error(here + "." + shown(name), "must be a known field, because others may change the model",
                  shown_json(value));
}

std::string type_of(const Json& scaling, const std::string& here) {
  for (const char* name : {"rope_type", "type"}) {
    const auto it = scaling.find(name);
    if (it == scaling.end()) continue;
    if (!it->is_string()) throw Error(here + "." + name, "must be text", shown_json(*it));
    return it->get<std::string>();
  }
  for (const auto& [name, value] : scaling.items())
    if (name != "rope_theta" && name != "partial_rotary_factor" && !value.is_null())
      throw Error(here + ".rope_type", "must be present", "none, besides " + shown(name));
  return "default";
}

std::int64_t head_dim_of(const layers::Config& model) {
  const std::string stated = layers::get(model, kLayer + "attention.head_dim");
  if (stated != "none") return std::stoll(stated);
  return std::stoll(layers::get(model, "decoder.dim")) /
         std::stoll(layers::get(model, kLayer + "attention.num_heads"));
}

// How many features of a head rotate, as a field of the positions; "" = all.
std::string rotated_text(const Json& json, const Json& scaling, const std::string& where,
                         const std::string& here, const Family& family, const layers::Config& model) {
  constexpr const char* kPart = "partial_rotary_factor";
  if (!family.partial_rotary) {
    for (const Json* place : {&scaling, &json})
      if (const Json* part = json_field(*place, kPart); part && *part != 1.0)
        throw Error((place == &scaling ? here + "." : where + ", field ") + kPart, "must be 1",
                    shown_json(*part));
    return {};
  }
  const bool nested = scaling.contains(kPart);
  const double part =
      nested || json.contains(kPart) ? json_number(nested ? scaling : json, kPart, nested ? here : where) : 1;
  const std::int64_t all = head_dim_of(model);
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(all) * part);
  if (rotated < 2 || rotated > all || rotated % 2 != 0)
    throw Error((nested ? here + "." : where + ", field ") + kPart,
                fmt::format("must rotate an even number of a head's {} features", all),
                std::to_string(rotated));
  return rotated == all ? "" : fmt::format(" rotary_dims={}", rotated);
}

// The object that describes positions, and what messages call it.
struct Scaling {
  Json json = Json::object();
  std::string here;
};

// An object of config.json, or null where it is absent, null or empty.
const Json* object_in(const Json& json, const char* name, const std::string& here) {
  const Json* value = json_field(json, name);
  if (value && !value->is_object()) throw Error(here, "must be an object or null", shown_json(*value));
  return value && !value->empty() ? value : nullptr;
}

// rope_scaling is the older name. If it is not empty, transformers ignores all of rope_parameters.
Scaling scaling_of(const Json& json, const std::string& where) {
  for (const char* nested : {"rope_scaling", "rope_parameters"})
    if (const Json* value = object_in(json, nested, where + ", field " + nested))
      return {*value, where + ", field " + nested};
  return {Json::object(), where};
}

// Of the layers of one type, where rope_parameters has an object for each; rope_scaling belongs to those without windows.
Scaling scaling_of_layers(const Json& json, const std::string& where, bool windowed) {
  const char* type = windowed ? kSliding : kFull;
  const std::string here = where + ", field rope_parameters";
  Scaling scaling{Json::object(), here + "." + type};
  if (const Json* parameters = object_in(json, "rope_parameters", here)) {
    for (const auto& [name, value] : parameters->items())
      if (name != kFull && name != kSliding)
        throw Error(here + "." + shown(name), std::string("must be ") + kFull + " or " + kSliding,
                    shown_json(value));
    if (const Json* own = object_in(*parameters, type, scaling.here)) scaling.json = *own;
  }
  const std::string older = where + ", field rope_scaling";
  const Json* all = object_in(json, "rope_scaling", older);
  if (!all || windowed) return scaling;
  if (!all->contains("rope_type")) throw Error(older + ".rope_type", "must be present", "none");
  scaling.json.update(*all);
  scaling.here = older;
  return scaling;
}

// What the positions of a model are read from.
struct Reading {
  const Json& json;  // config.json
  const std::string& where;
  const Family& family;
  const layers::Config& model;
  std::int64_t limit;  // positions
  const Note& note;
};

// The class of positions and its fields. `theta_name` is the field of config.json for a base that `scaling` has not.
std::string positions_text(const Reading& reading, const Scaling& scaling, const char* theta_name,
                           double absent_theta) {
  const auto& [json, where, family, model, limit, note] = reading;
  const auto& [object, here] = scaling;
  check_names(object, here);
  const double theta = object.contains("rope_theta") ? json_number(object, "rope_theta", where)
                       : json.contains(theta_name)   ? json_number(json, theta_name, where)
                                                     : absent_theta;
  const std::string type = type_of(object, here),
                    base = fmt::format("{{theta={}", theta) +
                           rotated_text(json, object, where, here, family, model);
  // transformers does not read the length that stands in `scaling` where the family has one beside it.
  const std::int64_t longrope_length = family.longrope_length > 0 && json.contains(kOriginal)
                                           ? json_length(json[kOriginal], kOriginal, where)
                                           : family.longrope_length;
  if (type == "default") return "RotaryPosition" + base + "}";
  if (family.longrope_length > 0) {
    if (!is_longrope(type))
      throw Error(here + ".rope_type", "must be default or longrope in this family", shown(type));
    return "LongRotaryPosition" + base + longrope_text(object, here, longrope_length, limit, note) + "}";
  }
  if (type == "linear")
    return fmt::format("LinearRotaryPosition{} factor={}}}", base, json_number(object, "factor", here));
  if (type != "yarn" && type != "llama3")
    throw Error(
        here + ".rope_type",
        "must be default, linear, yarn or llama3; types that depend on the sequence length are not supported",
        shown(type));
  const std::int64_t original = original_length(json, object, where, here, limit);
  return (type == "yarn" ? "YarnRotaryPosition" + base + yarn_text(object, here, original, limit)
                         : "Llama3RotaryPosition" + base + llama3_text(object, here, original)) +
         "}";
}

// rope_theta and rope_scaling of the positions at `path`.
nlohmann::ordered_json fields_of_positions(const layers::Config& config, const std::string& path,
                                           std::int64_t limit) {
  nlohmann::ordered_json json;
  const auto text = [&](const std::string& name) { return layers::get(config, path + "." + name); };
  const auto value = [&](const std::string& name) { return std::stod(text(name)); };
  json["rope_theta"] = value("theta");
  const std::string positions = layers::get(config, path);
  if (positions.starts_with("LinearRotaryPosition"))
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", value("factor")}};
  if (positions.starts_with("Llama3RotaryPosition"))
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
    // Some versions of transformers use the ratio of max_position_embeddings and this field as the factor, if
    // it is present.
    if (const std::int64_t original = std::stoll(text("original_length")); original != limit)
      json["rope_scaling"][kOriginal] = original;
    if (text("truncate") == "false") json["rope_scaling"]["truncate"] = false;
    if (text("attention_factor") != "none")
      json["rope_scaling"]["attention_factor"] = value("attention_factor");
  }
  return json;
}

// The older fields have no scaling for the layers with windows; rope_parameters has one for each type of layers.
void write_rotary_of_layers(const layers::Config& model, std::int64_t limit, nlohmann::ordered_json& json) {
  nlohmann::ordered_json full, sliding;
  for (const layers::Child<layers::Layer::Config>& layer : layers_of(model)) {
    nlohmann::ordered_json& fields = has_window(*layer) ? sliding : full;
    if (fields.is_null()) fields = fields_of_positions(*layer, "attention.positions", limit);
  }
  if (!sliding.contains("rope_scaling")) {
    if (!full.is_null()) json.update(full);
    if (!sliding.is_null()) json[kLocalTheta] = sliding["rope_theta"];
    return;
  }
  for (const auto& [type, fields] : {std::pair{kFull, full}, std::pair{kSliding, sliding}}) {
    if (fields.is_null()) continue;
    nlohmann::ordered_json& own = json["rope_parameters"][type];
    own = fields.value("rope_scaling", nlohmann::ordered_json{{"rope_type", "default"}});
    own["rope_theta"] = fields["rope_theta"];
  }
}

}  // namespace

double partial_rotary_factor(std::int64_t rotated, std::int64_t all) {
  const double part = static_cast<double>(rotated) / static_cast<double>(all);
  const bool enough = static_cast<std::int64_t>(static_cast<double>(all) * part) == rotated;
  return enough ? part : std::nextafter(part, 1);
}

bool is_rotary_field(const Family& family, const std::string& name) {
  if (name == kLocalTheta) return family.local_rope_theta > 0;
  // With frequencies by layers transformers reads it in their objects only.
  if (name == kOriginal) return family.local_rope_theta == 0;
  static const char* const kNames[] = {"max_position_embeddings", "rope_theta", "rope_scaling",
                                       "rope_parameters", "partial_rotary_factor"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::int64_t read_rotary(const Json& json, const std::string& where, const Family& family,
                         layers::Config& model, const layers::ClassTable& classes, const Note& note) {
  constexpr const char* kMaxPositions = "max_position_embeddings";
  const std::int64_t limit = json.contains(kMaxPositions)
                                 ? json_length(json[kMaxPositions], kMaxPositions, where)
                                 : family.max_positions;
  layers::set(model, kLimit, std::to_string(limit), classes);
  const Scaling scaling =
      family.local_rope_theta > 0 ? scaling_of_layers(json, where, false) : scaling_of(json, where);
  layers::set(
      model, kPositions,
      positions_text({json, where, family, model, limit, note}, scaling, "rope_theta", family.rope_theta),
      classes);
  return limit;
}

void read_local_rotary(const Json& json, const std::string& where, const Family& family, std::int64_t limit,
                       layers::CausalLM::Config& model, const layers::ClassTable& classes, const Note& note) {
  const std::string local =
      positions_text({json, where, family, model, limit, note}, scaling_of_layers(json, where, true),
                     kLocalTheta, family.local_rope_theta);
  std::vector<bool> full;
  for (const layers::Child<layers::Layer::Config>& layer : layers_of(model))
    full.push_back(!has_window(*layer));
  const auto count = std::count(full.begin(), full.end(), true);
  if (count == static_cast<std::ptrdiff_t>(full.size())) return;
  layers::Child<layers::Config> global;
  global.reset(layers::parse(layers::get(model, kPositions), classes, kPositions));
  layers::set(model, kPositions, local, classes);
  if (count > 0) override_layers(model, "attention.positions", global, full);
}

void write_rotary(const layers::Config& model, const Family& family, std::int64_t sequence,
                  nlohmann::ordered_json& json) {
  const std::string stated =
      layers::get(model, "decoder.positions") == "none" ? "" : layers::get(model, kLimit);
  const std::int64_t limit = stated.empty() ? sequence : std::stoll(stated);
  json["max_position_embeddings"] = limit;
  if (family.local_rope_theta > 0) return write_rotary_of_layers(model, limit, json);
  json.update(fields_of_positions(model, kPositions, limit));
  if (const std::string rotated = layers::get(model, kPositions + ".rotary_dims"); rotated != "none")
    json["partial_rotary_factor"] = partial_rotary_factor(std::stoll(rotated), head_dim_of(model));
  if (layers::get(model, kPositions).starts_with("LongRotaryPosition")) write_longrope(model, json);
}

}  // namespace meshloom::trainer
