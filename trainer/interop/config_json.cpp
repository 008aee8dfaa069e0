#include "trainer/interop/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/block/heterogeneous_stack.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/interop/families/dense_layers.h"
#include "trainer/interop/families/ignored_fields.h"
#include "trainer/interop/families/no_rope.h"
#include "trainer/interop/families/rotary.h"
#include "trainer/interop/families/windows.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;
using Kind = FieldRule::Kind;

constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::int64_t kMaxLayers = 4096;

// Fields that must have this value, or null, in all families. The table of a family has precedence.
bool is_without_effect(const std::string& name, const Json& value) {
  static const std::map<std::string, Json> kOnly{{"is_causal", true},
                                                 {"add_cross_attention", false},
                                                 {"attention_bias", false},
                                                 {"mlp_bias", false},
                                                 {"pruned_heads", Json::object()}};
  if (value.is_null()) return true;
  const auto only = kOnly.find(name);
  return only != kOnly.end() && only->second == value;
}

const FieldRule& rule_of(const Family& family, const std::string& name) {
  return *std::find_if(family.fields.begin(), family.fields.end(),
                       [&](const FieldRule& rule) { return rule.name == name; });
}

// The name under which `json` has a field.
const std::string& name_in(const FieldRule& rule, const Json& json) {
  return !rule.alias.empty() && json.contains(rule.alias) ? rule.alias : rule.name;
}

// The JSON value of a field, or what transformers uses in its place; none = keep the default.
std::optional<Json> value_of(const Family& family, const FieldRule& rule, const Json& json,
                             const std::string& where) {
  const std::string& name = name_in(rule, json);
  const auto it = json.find(name);
  if (it != json.end() && !it->is_null()) return *it;
  const std::string& meaning = it == json.end() ? rule.absent : rule.null;
  if (meaning.empty())
    throw Error(where + ", field " + name, it == json.end() ? "must be present" : "must not be null",
                it == json.end() ? "none" : "null");
  if (meaning == "none") return std::nullopt;
  if (meaning[0] != '=') return Json::parse(meaning);
  std::int64_t factor = 1, value = 0;
  std::string other = meaning.substr(1);
  if (const std::size_t star = other.find('*'); star != std::string::npos) {
    factor = std::stoll(other.substr(0, star));
    other = other.substr(star + 1);
  }
  const std::optional<Json> same = value_of(family, rule_of(family, other), json, where);
  if (!same || !natural(*same, value) || value > kMaxSize)
    throw Error(where + ", field " + other, "must be an integer from 1 to 2^24",
                same ? shown_json(*same) : "none");
  return Json(static_cast<std::uint64_t>(value * factor));
}

std::string text_of(const FieldRule& rule, const Json& value, const std::string& here) {
  if (rule.kind == Kind::size) {
    const std::int64_t max_size = rule.name.find("layer") != std::string::npos ? kMaxLayers : kMaxSize;
    std::int64_t size = 0;
    if (!natural(value, size) || size < 1 || size > max_size)
      throw Error(here, "must be an integer from 1 to " + std::to_string(max_size), shown_json(value));
    return std::to_string(size);
  }
  if (rule.kind == Kind::number || rule.kind == Kind::inverse_root) {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!std::isfinite(number) || number <= 0)
      throw Error(here, "must be a number above 0", shown_json(value));
    if (rule.kind == Kind::inverse_root && number != std::floor(number))
      throw Error(here, "must be an integer, as in transformers", shown_json(value));
    return fmt::format("{}", rule.kind == Kind::number ? number : 1 / std::sqrt(number));
  }
  std::vector<std::string> known;
  for (const auto& [json_text, our_text] : rule.choices) {
    if (Json::parse(json_text) == value) return our_text;
    known.push_back(json_text);
  }
  throw Error(here, (known.size() == 1 ? "must be " : "must be one of ") + hal::join(known),
              shown_json(value));
}

layers::CausalLM::Config read_model(const Family& family, const Json& json, const std::string& where,
                                    const layers::ClassTable& classes, const Note& note) {
  layers::CausalLM::Config model = family.skeleton();
  for (const FieldRule& rule : family.fields) {
    const std::optional<Json> value = value_of(family, rule, json, where);
    if (!value) {
      for (const std::string& path : rule.paths) layers::set(model, path, "none", classes);
      continue;
    }
    const std::string text = text_of(rule, *value, where + ", field " + name_in(rule, json));
    for (const std::string& path : rule.paths) layers::set(model, path, text, classes);
  }
  if (family.dense_hidden > 0) read_dense_layers(json, where, family.dense_hidden, model);
  if (family.rotary) {
    const std::int64_t limit = read_rotary(json, where, family, model, classes, note);
    if (family.no_rope) read_no_rope(json, where, model);  // before windows, which may depend on it
    read_windows(json, where, family, limit, model, classes, note);
    if (family.local_rope_theta > 0) read_local_rotary(json, where, family, limit, model, classes, note);
  }
  return model;
}

// The class name in "Silu {\n}".
std::string class_of(const std::string& text) { return text.substr(0, text.find_first_of(" {")); }

nlohmann::ordered_json write_model(const Family& family, const layers::Config& model, std::int64_t sequence) {
  nlohmann::ordered_json json{{"architectures", {family.architecture}}, {"model_type", family.name}};
  const std::unique_ptr<layers::Config> one = from_sparse_layer(model);
  for (const FieldRule& rule : family.fields) {
    if (rule.paths.empty()) continue;
    const std::string text = layers::get(*one, rule.paths.front());
    if (text == "none") {
      if (rule.null == "none" && rule.absent != "none") json[rule.name] = nullptr;
      continue;
    }
    if (rule.kind == Kind::inverse_root) {
      // Restores the number that was read, without the rounding of two square roots.
      const double number = std::stod(fmt::format("{:.12g}", std::pow(std::stod(text), -2)));
      json[rule.name] = number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
    } else if (rule.kind == Kind::size) {
      json[rule.name] = std::stoll(text);
    } else if (rule.kind == Kind::number) {
      json[rule.name] = std::stod(text);
    } else {
      const auto it = std::find_if(rule.choices.begin(), rule.choices.end(), [&](const auto& choice) {
        return class_of(choice.second) == class_of(text);
      });
      if (it == rule.choices.end())
        throw Error(rule.paths.front(), "has no name in transformers", class_of(text));
      json[rule.name] = Json::parse(it->first);
    }
  }
  if (family.divides_by_heads) {
    const auto hidden = json["hidden_size"].get<std::int64_t>(),
               heads = json["num_attention_heads"].get<std::int64_t>();
    if (hidden % heads != 0)
      throw Error("hidden_size", fmt::format("must be a multiple of num_attention_heads, {}", heads),
                  std::to_string(hidden));
  }
  // An absent field does not always mean to transformers what "none" means here.
  for (const FieldRule& rule : family.fields)
    if (rule.name == "num_key_value_heads" && !json.contains(rule.name))
      json[rule.name] = json["num_attention_heads"];
  if (family.rotary) {
    write_rotary(model, family, sequence, json);
    if (family.no_rope) write_no_rope(model, json);
    write_windows(model, family, json);
    const bool yarn = json.contains("rope_scaling") && json["rope_scaling"].value("rope_type", "") == "yarn";
    if (family.needs_head_dim && !json.contains("head_dim") && (yarn || json.contains("layer_types")))
      json["head_dim"] =
          json["hidden_size"].get<std::int64_t>() / json["num_attention_heads"].get<std::int64_t>();
  }
  if (family.dense_hidden > 0) write_dense_layers(model, json);
  return json;
}

// The fields that decide what a model computes: all leaves but those of initializers, of limits on the
// sequence (of which LongRoPE's choice of factors is one), and of losses that only training adds; for each layer when
// layers differ.
std::map<std::string, std::string> meaning(const layers::Config& model) {
  std::map<std::string, std::string> fields;
  std::vector<std::pair<std::string, std::string>> leaves = layers::flatten(model);
  const auto* lm = dynamic_cast<const layers::CausalLM::Config*>(&model);
  if (const auto* stack = lm ? lm->decoder->stack.as<layers::HeterogeneousStack::Config>() : nullptr) {
    std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("decoder.stack"); });
    for (std::int64_t i = 0; i < stack->num_layers; ++i)
      for (const auto& [path, value] : layers::flatten(*stack->layer_at(i)))
        leaves.emplace_back(fmt::format("decoder.stack.layer{}.{}", i, path), value);
  }
  for (const auto& [path, value] : leaves) {
    const bool limit = (path == "decoder.positions" && (value == "SequenceLimit" || value == "none")) ||
                       path.ends_with(".long_texts");
    const bool loss = path == "loss" || path.starts_with("loss.") ||
                      (path.find(".regularizers") != std::string::npos && value != "LossFreeBalancing");
    if (path.find(".init") == std::string::npos && !path.starts_with("decoder.positions.") && !limit && !loss)
      fields[path] = value;
  }
  for (auto& [path, value] : fields)
    if (const std::size_t at = path.rfind("num_kv_heads"); at != std::string::npos && value == "none")
      value = fields[path.substr(0, at) + "num_heads"];
  for (auto& [path, value] : fields)
    if (path.ends_with(".head_dim") && value == "none") {
      const auto heads = fields.find(path.substr(0, path.rfind('.')) + ".num_heads"),
                 dim = fields.find("decoder.dim");
      if (heads != fields.end() && dim != fields.end())
        value = std::to_string(std::stoll(dim->second) / std::stoll(heads->second));
    }
  return fields;
}

}  // namespace

bool describes_model(const Family& family, const std::string& field) {
  return (family.rotary && (is_rotary_field(family, field) || is_window_field(family, field))) ||
         (family.no_rope && is_no_rope_field(field)) ||
         (family.dense_hidden > 0 && is_dense_layer_field(field)) ||
         std::any_of(family.fields.begin(), family.fields.end(), [&](const FieldRule& rule) {
           return rule.name == field || (!rule.alias.empty() && rule.alias == field);
         });
}

ReadConfig read_config_json(const Json& json, const std::string& where, const layers::ClassTable& classes,
                            const Note& note) {
  if (!json.is_object()) throw Error(where, "must be a JSON object", shown_json(json));
  const auto type = json.find("model_type");
  if (type == json.end() || !type->is_string())
    throw Error(where + ", field model_type", "must be text",
                type == json.end() ? "none" : shown_json(*type));
  for (const char* part : {"vision_config", "text_config"})
    if (const auto it = json.find(part); it != json.end() && !it->is_null())
      throw Error(
          where + ", field " + part,
          "must be absent: only models of text alone are imported, such as those of model_type gemma3_text",
          "model_type " + shown_json(*type));
  const Family& family = find_family(type->get<std::string>(), where);
  if (const auto q = json.find("quantization_config"); q != json.end() && !q->is_null())
    throw Error(where + ", field quantization_config", "quantized weights are not supported", shown_json(*q));
  if (const auto names = json.find("architectures");
      names != json.end() && names->is_array() && !names->empty() &&
      std::find(names->begin(), names->end(), family.architecture) == names->end())
    throw Error(where + ", field architectures", "must be [\"" + family.architecture + "\"]",
                shown_json(*names));
  for (const auto& [name, value] : json.items()) {
    if (is_ignored_field(family, name) || describes_model(family, name) || is_without_effect(name, value))
      continue;
    if (!is_dropout_field(name))
      throw Error(where + ", field " + shown(name),
                  "must be a known field of " + family.name +
                      ", because others may change the model (remove it from the file if it does not)",
                  shown_json(value));
    if (value != 0.0) note(where + ", field " + name + ": not imported; --modify or --set can add dropout");
  }
  return {&family, read_model(family, json, where, classes, note)};
}

WrittenConfig write_config_json(const layers::Config& model, std::int64_t sequence,
                                const std::string& wanted_family, const layers::ClassTable& classes) {
  if (!wanted_family.empty()) find_family(wanted_family, "--family");
  if (layers::reads_source(model))
    throw Error("model", "a model with an encoder cannot be written for transformers yet",
                "'" + std::string(model.class_name()) + "'");
  std::string nearest;
  std::size_t fewest = SIZE_MAX;
  for (const Family& family : families()) {
    if (!wanted_family.empty() && family.name != wanted_family) continue;
    try {
      nlohmann::ordered_json json = write_model(family, model, sequence);
      const layers::CausalLM::Config again =
          read_model(family, Json::parse(json.dump()), family.name, classes, [](const std::string&) {});
      const auto wanted = meaning(model), got = meaning(again);
      std::vector<std::string> differing;
      for (const auto& [path, value] : wanted)
        if (const auto it = got.find(path); it == got.end() || it->second != value)
          differing.push_back(path + ": " + value);
      for (const auto& [path, value] : got)
        if (!wanted.count(path)) differing.push_back(path + ": absent");
      if (differing.empty()) return {&family, std::move(json)};
      if (differing.size() < fewest) {
        fewest = differing.size();
        if (differing.size() > 4) differing.resize(4);
        nearest = family.name + " cannot express " + hal::join(differing);
      }
    } catch (const Error& error) {  // a path that models of this family have and this model does not
      if (nearest.empty()) nearest = family.name + ": " + error.what();
    }
  }
  throw Error("model", "must be one that a family of transformers can describe", nearest);
}

}  // namespace meshloom::trainer
