// The grammar of JSON (RFC 8259), as models write it.
//
// Between tokens stands nothing, a space, or a line's end and up to 64 spaces: after { [ and , and before } and ]. After a colon
// stands nothing or a space. A number has at most 19 digits, 17 behind the point and an exponent of two, so that it ends. Strings
// are valid UTF-8, and escapes of surrogates come in pairs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/inference/grammar/code_points.h"
#include "trainer/inference/grammar/grammar_builder.h"

namespace meshloom::trainer {

// Any object of JSON.
SharedGrammar grammar_of_json_object();

// The text of a string in JSON, with quotes and the shortest escapes, as Spelling::json has them.
std::string json_text(std::string_view text);

// Appends parts of JSON to a grammar. Rules are made when they are first needed.
class JsonGrammar {
 public:
  using State = GrammarBuilder::State;
  using Rule = GrammarBuilder::Rule;
  using Part = GrammarBuilder::Part;
  static constexpr int kDigits = 19, kFraction = 17, kExponent = 2, kIndent = 64, kInPlace = 1000;

  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}

  State space(State from) { return builder_.called(from, rule("space")); }
  State value(State from) { return builder_.called(from, rule("value")); }
  State string(State from) { return builder_.called(from, rule("string")); }
  State number(State from) { return builder_.called(from, rule("number")); }
  State integer(State from) { return builder_.called(from, rule("integer")); }

  // A string of `min` to `max` characters.
  State string(State from, std::int64_t min, std::int64_t max);
  // `prefix`, then `min` to `max` elements in all, of which those behind the prefix are `item`.
  State array(State from, const std::vector<Part>& prefix, const Part& item, std::int64_t min,
              std::int64_t max);
  // Properties come in this order, then further ones with other names.
  struct Property {
    std::string name;
    Part value;
    bool required = false;
  };
  State object(State from, const std::vector<Property>& properties, const std::optional<Part>& further);

 private:
  Rule rule(const std::string& name);
  void define(const std::string& name, Rule rule);
  State character(State from, bool in_place);
  State escaped(State from);
  State digits(State from, int min, int max);
  State whole(State from);
  State key(State from, const std::vector<Property>& others);
  State member(State from, const Part& value);

  GrammarBuilder& builder_;
  std::map<std::string, Rule> rules_;
  std::int64_t in_place_ = 0;  // characters
};

}  // namespace meshloom::trainer
