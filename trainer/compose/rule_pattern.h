// The patterns of kernel and remat rules over names of ops, paths of layers and tags: globs as in modifiers
// (layers/config/glob.h) or, until version 1.0, regular expressions that must match in full.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "layers/config/glob.h"
#include "trainer/compose/regex.h"

namespace meshloom::trainer {

// Whether a rule's pattern is read as a regular expression: it has any of \ ^ $ ( ) | [ ] +, or '.' before
// '*' or '?', which a glob never needs ("layer/*" instead of "layer.*"), or it is empty.
bool is_regex(const std::string& pattern);
// Whether two patterns are the same; "**" and ".*" are.
bool same_pattern(const std::string& a, const std::string& b);
// What a user should know about a rule's pattern; "" = nothing. `what` names it: "kernel rule path".
std::string pattern_note(const std::string& pattern, const std::string& what);

// One pattern with a cache of answers, because paths and tags repeat thousands of times.
class Matcher {
 public:
  // Throws Error(where, ...) on a malformed pattern.
  Matcher(const std::string& pattern, const std::string& where);
  // Throws Error when a regular expression needs too many steps.
  bool operator()(const std::string& text);

 private:
  std::optional<layers::Glob> glob_;
  std::optional<Regex> regex_;
  std::map<std::string, bool> answers_;
};

}  // namespace meshloom::trainer
