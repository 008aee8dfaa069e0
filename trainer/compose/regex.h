// Regular expressions of rules. Patterns come from outside files too, so both reading and matching one are bounded in
// time and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// The syntax is Perl's, which contains that of ECMAScript: what std::regex reads means the same here. Texts are bytes.
class Regex {
 public:
  // Throws Error(where, ...) on a pattern that is none, or one too long or too deep.
  Regex(const std::string& pattern, std::string where);

  bool matches(std::string_view text) const;  // the whole text; throws Error when that needs too many steps
  bool contained_in(std::string_view text) const;  // any part of it; throws likewise

 private:
  struct Compiled;
  bool match(std::string_view text, bool whole) const;

  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_, where_;
};

}  // namespace meshloom::trainer
