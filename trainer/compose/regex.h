// Regular expressions of rules. Patterns may come from untrusted files, so compiling and matching are bounded
// in time and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// The syntax is Perl's, which includes that of ECMAScript: patterns for std::regex mean the same here. Texts
// are bytes.
class Regex {
 public:
  // Throws Error(where, ...) on an invalid pattern, or one that is too long or nested too deep.
  Regex(const std::string& pattern, std::string where);

  bool matches(
      std::string_view text) const;  // the whole text; throws Error when matching needs too many steps
  bool contained_in(std::string_view text) const;  // any part of it; throws Error likewise

 private:
  struct Compiled;
  bool match(std::string_view text, bool whole) const;

  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_, where_;
};

}  // namespace meshloom::trainer
