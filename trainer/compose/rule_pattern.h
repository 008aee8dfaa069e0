// Patterns of kernel and remat rules, over names of ops, paths of layers and tags: the language of modifiers
// (layers/config/glob.h), or, until version 1.0, a regular expression that is matched in full.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "layers/config/glob.h"
#include "trainer/compose/regex.h"

namespace meshloom::trainer {

// Whether a rule's pattern is read as a regular expression: one with any of \ ^ $ ( ) | [ ] +, or with '.' before '*'
// or '?', which a pattern of names never needs ("layer/*" for "layer.*"). The empty one is too.
bool is_regex(const std::string& pattern);
// Whether two patterns of rules are the same: those for everything, "**" and ".*", are.
bool same_pattern(const std::string& a, const std::string& b);
// What a user should be told of a rule's pattern; "" = nothing. `what` names it: "kernel rule path".
std::string pattern_note(const std::string& pattern, const std::string& what);

// One pattern, with its answers remembered: paths and tags repeat thousands of times.
class Matcher {
 public:
  // Throws Error(where, ...) on a malformed pattern.
  Matcher(const std::string& pattern, const std::string& where);
  // Throws Error where a regular expression needs too many steps.
  bool operator()(const std::string& text);

 private:
  std::optional<layers::Glob> glob_;
  std::optional<Regex> regex_;
  std::map<std::string, bool> answers_;
};

}  // namespace meshloom::trainer
