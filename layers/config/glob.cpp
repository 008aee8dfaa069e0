#include "layers/config/glob.h"

#include "hal/error.h"

namespace meshloom::layers {
namespace {

constexpr std::size_t kMaxAlternatives = 1000;
constexpr std::size_t kMaxCharacters = 1000;  // also bounds how deep braces nest

[[noreturn]] void bad(std::string_view pattern, const char* rule) {
  throw hal::Error("pattern '" + std::string(pattern) + "'", rule);
}

// The index after the brace that closes the one at `open`, or npos.
std::size_t after_brace(std::string_view text, std::size_t open) {
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
    if (into.size() == kMaxAlternatives) bad(whole, "must have at most 1000 alternatives");
    into.push_back(text);
    return;
  }
  const std::size_t end = after_brace(text, open);
  if (end == std::string::npos) bad(whole, "a '{' needs a '}' after it");
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

// Whether `items` match `pattern`, in which is_star(p) says that p matches any number of items. Only the last star is
// ever retried, so that the time is at most proportional to the product of both lengths.
template <typename Pattern, typename Items, typename IsStar, typename Matches>
bool matches_with_stars(const Pattern& pattern, const Items& items, IsStar is_star, Matches matches) {
  std::size_t p = 0, i = 0, star = pattern.size(), after_star = 0;
  while (i < items.size()) {
    if (p < pattern.size() && is_star(pattern[p])) {
      star = p++;
      after_star = i;
    } else if (p < pattern.size() && matches(pattern[p], items[i])) {
      ++p;
      ++i;
    } else if (star < pattern.size()) {
      p = star + 1;
      i = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && is_star(pattern[p])) ++p;
  return p == pattern.size();
}

bool name_matches(std::string_view pattern, std::string_view name) {
  return matches_with_stars(
      pattern, name, [](char p) { return p == '*'; }, [](char p, char c) { return p == '?' || p == c; });
}

bool names_match(const std::vector<std::string>& pattern, const std::vector<std::string>& names) {
  return matches_with_stars(
      pattern, names, [](const std::string& p) { return p == "**"; }, name_matches);
}

}  // namespace

Glob::Glob(std::string_view pattern) {
  if (pattern.size() > kMaxCharacters)
    throw hal::Error("pattern", "must have at most 1000 characters", std::to_string(pattern.size()));
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
    if (names_match(pattern, names)) return true;
  return false;
}

}  // namespace meshloom::layers
