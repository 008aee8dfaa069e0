#include "layers/config/glob.h"

#include "hal/error.h"

namespace meshloom::layers {
namespace {

constexpr std::size_t kMostAlternatives = 1000;

[[noreturn]] void bad(std::string_view pattern, const char* rule) {
  throw hal::Error("pattern '" + std::string(pattern) + "'", rule);
}

// Index behind the brace that closes the one at `open`.
std::size_t behind_brace(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

void expand(std::string_view whole, const std::string& text, std::vector<std::string>& into) {
  const std::size_t open = text.find('{');
  if (text.substr(0, open).find('}') != std::string::npos) bad(whole, "a '}' needs a '{' before it");
  if (open == std::string::npos) {
    if (into.size() == kMostAlternatives) bad(whole, "has at most 1000 alternatives");
    into.push_back(text);
    return;
  }
  const std::size_t end = behind_brace(text, open);
  if (end == std::string::npos) bad(whole, "a '{' needs a '}' behind it");
  int depth = 0;
  for (std::size_t begin = open + 1, i = begin; i < end; ++i) {
    if (depth == 0 && (text[i] == ',' || i + 1 == end)) {
      expand(whole, text.substr(0, open) + text.substr(begin, i - begin) + text.substr(end), into);
      begin = i + 1;
    }
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
  }
}

std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  for (std::size_t begin = 0;;) {
    const std::size_t end = path.find_first_of("./", begin);
    names.emplace_back(path.substr(begin, end - begin));
    if (end == std::string_view::npos) return names;
    begin = end + 1;
  }
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*')
    return name_matches(pattern.substr(1), name) || (!name.empty() && name_matches(pattern, name.substr(1)));
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         name_matches(pattern.substr(1), name.substr(1));
}

bool names_match(const std::vector<std::string>& pattern, std::size_t p, const std::vector<std::string>& names,
                 std::size_t n) {
  if (p == pattern.size()) return n == names.size();
  if (pattern[p] == "**")
    return names_match(pattern, p + 1, names, n) || (n < names.size() && names_match(pattern, p, names, n + 1));
  return n < names.size() && name_matches(pattern[p], names[n]) && names_match(pattern, p + 1, names, n + 1);
}

}  // namespace

Glob::Glob(std::string_view pattern) {
  std::vector<std::string> texts;
  expand(pattern, std::string(pattern), texts);
  for (const std::string& text : texts) {
    alternatives_.push_back(names_of(text));
    for (const std::string& name : alternatives_.back())
      if (name.empty()) bad(pattern, "names are separated by single dots");
  }
}

bool Glob::matches(std::string_view path) const {
  const std::vector<std::string> names = path.empty() ? std::vector<std::string>{} : names_of(path);
  for (const std::vector<std::string>& pattern : alternatives_)
    if (names_match(pattern, 0, names, 0)) return true;
  return false;
}

}  // namespace meshloom::layers
