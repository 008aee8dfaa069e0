// Regular expressions of rules: matched in full, with errors that name the rule.
#pragma once

#include <map>
#include <regex>
#include <string>

namespace meshloom::trainer {

// Throws Error(where, ...) on a malformed pattern.
std::regex rule_regex(const std::string& pattern, const std::string& where);

// One pattern, with its answers remembered: paths and tags repeat thousands of times.
class Matcher {
 public:
  Matcher(const std::string& pattern, const std::string& where) : regex_(rule_regex(pattern, where)) {}
  bool operator()(const std::string& text) {
    const auto [it, fresh] = answers_.emplace(text, false);
    if (fresh) it->second = std::regex_match(text, regex_);
    return it->second;
  }

 private:
  std::regex regex_;
  std::map<std::string, bool> answers_;
};

}  // namespace meshloom::trainer
