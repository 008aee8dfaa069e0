// The steps of a tokenizer.json that work on text: normalisers, which rewrite it, and pre-tokenisers, which cut it
// into words. Each is read from its JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

// Throws Error when json, an object at `where`, has no text field `name`.
std::string text_field(const nlohmann::json& json, const char* name, const std::string& where);
bool flag_field(const nlohmann::json& json, const char* name, bool absent, const std::string& where);
// The object's type. Throws Error when it is no object.
std::string type_of(const nlohmann::json& json, const std::string& where);
// {"String": ...} or {"Regex": ...} as a regular expression.
std::string pattern_field(const nlohmann::json& json, const std::string& where);

std::string replaced(std::string text, std::string_view from, std::string_view to);

using Normalizer = std::function<std::string(std::string)>;
// null gives the identity. Throws Error for a type that is not built.
Normalizer read_normalizer(const nlohmann::json& json, const std::string& where);

struct Word {
  std::string text;
  bool first = false;  // at the very front of the input
};
struct PreTokenizer {
  std::vector<std::function<std::vector<Word>(std::vector<Word>)>> steps;
  bool byte_level = false;  // words are then encoded as letters that stand for bytes
  std::vector<Word> operator()(std::vector<Word> words) const {
    for (const auto& step : steps) words = step(std::move(words));
    return words;
  }
};
PreTokenizer read_pre_tokenizer(const nlohmann::json& json, const std::string& where);

// GPT-2's letters for bytes: printable ones stand for themselves, the others for letters from U+0100 on.
const std::vector<std::string>& byte_letters();

}  // namespace meshloom::trainer
