// What tokenizer_config.json of a Hugging Face tokenizer says: which tokens are special, and the chat template.
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
  std::optional<bool> add_bos_token;
  std::optional<std::string> chat_template;       // the only one, or that named "default"
  std::vector<std::string> other_templates = {};  // names of those that are not taken
};

// `json` is the file's, or that of special_tokens_map.json, which has the same members. A token is text or an object with a
// `content`; null is none. Throws Error (where = `where`).
TokenizerSettings read_tokenizer_settings(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace meshloom::trainer
