#include "trainer/data/tokenizer/tokenizer_settings.h"

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_of(const OrderedJson& json, const std::string& where) {
  if (!json.is_string()) throw Error(where, "must be text", shown_json(json));
  return json.get<std::string>();
}

void read_templates(const OrderedJson& json, const std::string& where, TokenizerSettings& into) {
  if (!json.is_array()) {
    into.chat_template = text_of(json, where);
    return;
  }
  for (const OrderedJson& each : json) {
    if (!each.is_object() || !each.contains("name") || !each.contains("template"))
      throw Error(where, "a list of templates must hold objects with a name and a template",
                  shown_json(each));
    const std::string name = text_of(each["name"], where + ", name");
    if (name == "default")
      into.chat_template = text_of(each["template"], where + " 'default'");
    else
      into.other_templates.push_back(name);
  }
}

}  // namespace

TokenizerSettings read_tokenizer_settings(const OrderedJson& json, const std::string& where) {
  if (!json.is_object()) throw Error(where, "must be a JSON object", shown_json(json));
  TokenizerSettings settings;
  for (const auto& [name, value] : json.items()) {
    const std::string here = where + ", field " + name;
    if (value.is_null()) continue;
    if (name == "chat_template") {
      read_templates(value, here, settings);
    } else if (name == "add_bos_token" || name == "add_eos_token" || name == "add_prefix_space" ||
               name == "split_special_tokens") {
      if (!value.is_boolean()) throw Error(here, "must be true or false", shown_json(value));
      if (name == "add_bos_token") settings.add_bos_token = value.get<bool>();
      if (name == "add_eos_token") settings.add_eos_token = value.get<bool>();
      if (name == "add_prefix_space") settings.add_prefix_space = value.get<bool>();
      if (name == "split_special_tokens") settings.split_special_tokens = value.get<bool>();
    } else if (name.ends_with("_token") && (value.is_string() || value.is_object())) {
      if (value.is_object() && !value.contains("content"))
        throw Error(here, "must have a content", shown_json(value));
      settings.tokens[name] = text_of(value.is_object() ? value["content"] : value, here);
    } else if (name == "eos_token" || name == "bos_token") {
      throw Error(here, "must be text, an object with a content, or null", shown_json(value));
    }
  }
  return settings;
}

}  // namespace meshloom::trainer
