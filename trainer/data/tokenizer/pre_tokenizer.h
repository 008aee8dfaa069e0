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

// How much longer the steps may make one text, in all: a file from outside must not turn kilobytes into gigabytes.
class Growth {
 public:
  static constexpr std::size_t kMax = 64;  // times the text; NFKD makes 11 of 1
  explicit Growth(std::size_t text_bytes) : left_(text_bytes * kMax + 4096) {}
  // Throws Error when fewer bytes than these are left.
  void add(std::size_t bytes);

 private:
  std::size_t left_;
};

// With every `from` as `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to, Growth& growth);

using Normalizer = std::function<std::string(std::string, Growth&)>;
// null gives the identity. Throws Error for a type that is not built.
Normalizer read_normalizer(const nlohmann::json& json, const std::string& where);

struct Word {
  std::string text;
  bool first = false;  // at the very front of the input
};
struct PreTokenizer {
  // A step gives the words that it makes of one, in order; each goes through all further steps before the next is made, so
  // that the words of a long text are never in memory together.
  using Take = std::function<void(Word)>;
  using Step = std::function<void(Word, Growth&, const Take&)>;
  std::vector<Step> steps;
  bool byte_level = false;  // words are then encoded as letters that stand for bytes
  void operator()(Word word, Growth& growth, const Take& take) const {
    run(0, std::move(word), growth, take);
  }

 private:
  void run(std::size_t step, Word word, Growth& growth, const Take& take) const;
};
PreTokenizer read_pre_tokenizer(const nlohmann::json& json, const std::string& where);

// GPT-2's letters for bytes: printable ones stand for themselves, the others for letters from U+0100 on.
const std::vector<std::string>& bytes_to_unicode();

}  // namespace meshloom::trainer
