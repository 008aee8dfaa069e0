// The normalizers of a tokenizer.json, which rewrite text, and its pre-tokenizers, which cut text into words
// (pre-tokens). Each is read from its JSON.
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
// The member "type" of an object. Throws Error when there is no such object or text.
std::string type_of(const nlohmann::json& json, const std::string& where);
// {"String": ...} or {"Regex": ...} as a regular expression.
std::string pattern_field(const nlohmann::json& json, const std::string& where);

// Limits how much the steps may lengthen one text in total: an untrusted file must not turn kilobytes into
// gigabytes.
class GrowthLimit {
 public:
  static constexpr std::size_t kMax = 64;  // times the text; NFKD lengthens it up to 11 times
  explicit GrowthLimit(std::size_t text_bytes) : left_(text_bytes * kMax + 4096) {}
  // Counts added bytes. Throws Error when the limit is exceeded.
  void add(std::size_t bytes);

 private:
  std::size_t left_;
};

// The text with every `from` replaced by `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to, GrowthLimit& growth);

using Normalizer = std::function<std::string(std::string, GrowthLimit&)>;
// JSON null gives the identity. Throws Error for a type that is not supported.
Normalizer read_normalizer(const nlohmann::json& json, const std::string& where);

struct PreToken {
  std::string text;
  bool first = false;  // at the beginning of the input
};
struct PreTokenizer {
  // A step cuts a word into words and emits them in order. Each goes through all further steps before the
  // next is made, so that the words of a long text are never in memory together.
  using Emit = std::function<void(PreToken)>;
  using Step = std::function<void(PreToken, GrowthLimit&, const Emit&)>;
  std::vector<Step> steps;
  bool byte_level = false;  // words are encoded with a character for each byte (bytes_to_unicode)
  void operator()(PreToken word, GrowthLimit& growth, const Emit& emit) const {
    run(0, std::move(word), growth, emit);
  }

 private:
  void run(std::size_t step, PreToken word, GrowthLimit& growth, const Emit& emit) const;
};
PreTokenizer read_pre_tokenizer(const nlohmann::json& json, const std::string& where);

// GPT-2's character for each byte: printable bytes stand for themselves, the others for characters from
// U+0100 on.
const std::vector<std::string>& bytes_to_unicode();

}  // namespace meshloom::trainer
