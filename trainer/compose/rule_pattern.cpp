#include "trainer/compose/rule_pattern.h"

#include "hal/error.h"

namespace meshloom::trainer {

bool is_regex(const std::string& pattern) {
  return pattern.empty() || pattern.find_first_of("\\^$()|[]+") != std::string::npos ||
         pattern.find(".*") != std::string::npos || pattern.find(".?") != std::string::npos;
}

bool same_pattern(const std::string& a, const std::string& b) {
  const auto everything = [](const std::string& pattern) { return pattern == "**" || pattern == ".*"; };
  return a == b || (everything(a) && everything(b));
}

std::string pattern_note(const std::string& pattern, const std::string& what) {
  if (!is_regex(pattern) || pattern.empty() || pattern == ".*") return {};  // every older recipe has ".*"
  return what + " '" + pattern +
         "': regular expressions are deprecated here and will be removed in version 1.0; write it as a "
         "pattern of names, such as **.q_proj (see meshloom classes KernelRule)";
}

Matcher::Matcher(const std::string& pattern, const std::string& where) {
  if (is_regex(pattern)) {
    regex_.emplace(pattern, where);
    return;
  }
  try {
    glob_.emplace(pattern);
  } catch (const hal::Error& error) {
    throw hal::Error(where, "must be a pattern of names: " + error.rule(), "'" + pattern + "'");
  }
}

bool Matcher::operator()(const std::string& text) {
  const auto found = answers_.find(text);
  if (found != answers_.end()) return found->second;
  return answers_.emplace(text, glob_ ? glob_->matches(text) : regex_->matches(text)).first->second;
}

}  // namespace meshloom::trainer
