// Reads the tokenizer_config.json of a Hugging Face tokenizer: its special tokens and its chat template.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

struct TokenizerSettings {
  std::map<std::string, std::string>
      tokens;  // "eos_token" -> "</s>", and every other member that ends in _token
  std::optional<bool> add_bos_token, add_prefix_space;
  bool add_eos_token = false, split_special_tokens = false;
  std::optional<std::string> chat_template;       // the only one, or the one named "default"
  std::vector<std::string> other_templates = {};  // names of the templates that are not used
};

// `json` is the contents of the file, or of special_tokens_map.json, which has the same members. A token is a
// text or an object with a `content`; null means none. Throws Error (where = `where`).
TokenizerSettings read_tokenizer_settings(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace meshloom::trainer
