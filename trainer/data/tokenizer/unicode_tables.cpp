#include "trainer/data/tokenizer/unicode_tables.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

// The characters that Unicode 15, 15.1 and 16 added to each general category.
struct Added {
  const char* category;
  const char* code_points;
};
constexpr Added kAdded[] = {
    {"L",
     "1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 1123F-11240 "
     "11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 "
     "1342F 13441-13446 13460-143FA 16100-1611D 16D40-16D6C 18CFF 1B132 1B155 1DF25-1DF2A 1E030-1E06D "
     "1E4D0-1E4EB 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF"},
    {"Lu", "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65"},
    {"Ll", "1C8A A7CD A7DB 10D70-10D85 1DF25-1DF2A"},
    {"Lm", "10D4E 10D6F 16D40-16D42 16D6B-16D6C 1E030-1E06D 1E4EB"},
    {"Lo",
     "105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 1123F-11240 11380-11389 1138B 1138E 11390-113B5 113B7 "
     "113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 13460-143FA 16100-1611D "
     "16D43-16D6A 18CFF 1B132 1B155 1E4D0-1E4EA 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF"},
    {"M",
     "0897 0CF3 0ECE 10D69-10D6D 10EFC-10EFF 11241 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 "
     "113D2 113E1-113E2 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42 11F5A 13440 13447-13455 1611E-1612F "
     "1E08F 1E4EC-1E4EF 1E5EE-1E5EF"},
    {"Mn",
     "0897 0ECE 10D69-10D6D 10EFC-10EFF 11241 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F00-11F01 "
     "11F36-11F3A 11F40 11F42 11F5A 13440 13447-13455 1611E-16129 1612D-1612F 1E08F 1E4EC-1E4EF "
     "1E5EE-1E5EF"},
    {"Mc",
     "0CF3 113B8-113BA 113C2 113C5 113C7-113CA 113CC-113CD 113CF 1171E 11F03 11F34-11F35 11F3E-11F3F "
     "11F41 1612A-1612C"},
    {"N",
     "10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1D2C0-1D2D3 "
     "1E4F0-1E4F9 1E5F1-1E5FA"},
    {"Nd",
     "10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1E4F0-1E4F9 "
     "1E5F1-1E5FA"},
    {"P", "1B4E-1B4F 1B7F 10D6E 113D4-113D5 113D7-113D8 11B00-11B09 11BE1 11F43-11F4F 16D6D-16D6F 1E5FF"},
    {"S",
     "2427-2429 2FFC-2FFF 31E4-31E5 31EF 10D8E-10D8F 1CC00-1CCEF 1CD00-1CEB3 1F6DC 1F774-1F776 "
     "1F77B-1F77F 1F7D9 1F8B2-1F8BB 1F8C0-1F8C1 1FA75-1FA77 1FA87-1FA89 1FA8F 1FAAD-1FAAF 1FABB-1FABF "
     "1FAC6 1FACE-1FACF 1FADA-1FADC 1FADF 1FAE8-1FAE9 1FAF7-1FAF8 1FBCB-1FBEF"}};

// \w also stands for these, except inside another class: superscript digits and fractions.
constexpr const char* kLatinNumbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

// "1C89-1C8A A7CB" as the inside of a character class.
std::string inside(std::string_view code_points) {
  std::string text;
  for (const char c : code_points) {
    if (c == ' ' || c == '-') text += '}';
    if (c == '-') text += c;
    if (text.empty() || c == ' ' || c == '-') text += "\\x{";
    if (c != ' ' && c != '-') text += c;
  }
  return text.empty() ? text : text + "}";
}

// \p{Mn} without the character that Unicode 16 removed from it, which a class of PCRE2 10.42 cannot express
// otherwise.
std::string nonspacing_marks() {
  constexpr utf8proc_int32_t kTakenOut = 0x1171e, kEnd = 0xe01f0;  // after the last one
  const auto is_one = [](utf8proc_int32_t c) {
    return c != kTakenOut && c < kEnd && utf8proc_category(c) == UTF8PROC_CATEGORY_MN;
  };
  std::string text;
  for (utf8proc_int32_t c = 0x300; c < kEnd; ++c) {
    if (c == 0x20000) c = 0xe0000;  // ideographs and unassigned
    if (!is_one(c)) continue;
    const utf8proc_int32_t first = c;
    while (is_one(c + 1)) ++c;
    text += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, c);
  }
  return text;
}

// The contents of the classes that are written out, by the name after the backslash.
const std::map<std::string, std::string, std::less<>>& classes() {
  static const auto* const all = [] {
    auto* made = new std::map<std::string, std::string, std::less<>>;
    for (const Added& added : kAdded)
      (*made)[std::string("p{") + added.category + "}"] =
          std::string("\\p{") + added.category + "}" + inside(added.code_points);
    (*made)["p{Mn}"].replace(0, std::string_view("\\p{Mn}").size(), nonspacing_marks());
    const auto of = [&](const char* category) { return made->at(std::string("p{") + category + "}"); };
    (*made)["d"] = of("Nd");
    // Without U+180E, which is no space since Unicode 6.3.
    (*made)["s"] =
        R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
    (*made)["w"] = of("L") + of("M") + of("Nd") +
                   R"(\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
                   R"(\x{1f170}-\x{1f189})";
    (*made)["h"] = "0-9A-Fa-f";
    (*made)["v"] = "\\x0b";
    // Only the script itself, not characters that other scripts use too.
    (*made)["p{Han}"] = R"(\p{sc:Han}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
    return made;
  }();
  return *all;
}

// \b or \B by what \w is here.
std::string word_border(bool negative) {
  const std::string word = "[" + classes().at("w") + kLatinNumbers + "]";
  const char *same = negative ? "=" : "!", *other = negative ? "!" : "=";
  return fmt::format("(?:(?<={0})(?{1}{0})|(?<!{0})(?{2}{0}))", word, same, other);
}

// "{2,3}", "{2}", "{2,}" or "{,3}" at a place of a pattern; "" where there is none.
std::string_view interval_at(std::string_view pattern, std::size_t at) {
  if (pattern[at] != '{') return {};
  std::size_t end = at + 1;
  bool digits = false;
  const auto skip_digits = [&] {
    for (; end < pattern.size() && pattern[end] >= '0' && pattern[end] <= '9'; ++end) digits = true;
  };
  skip_digits();
  if (end < pattern.size() && pattern[end] == ',') ++end;
  skip_digits();
  const bool whole = digits && end < pattern.size() && pattern[end] == '}';
  return whole ? pattern.substr(at, end + 1 - at) : std::string_view();
}

// Sorted. Those with a combining class, a canonical or a compatibility decomposition, or a place in a
// composition.
constexpr std::pair<std::int32_t, std::int32_t> kNewerThanNormalForms[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

}  // namespace

std::string portable_pattern(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  std::size_t atom = 0;                  // where in `out` the last thing begins that a quantifier can follow
  std::vector<std::size_t> open_groups;  // where each open group begins
  for (std::size_t at = 0; at < pattern.size();) {
    const char c = pattern[at];
    if (!in_class) {
      if (const std::string_view interval = interval_at(pattern, at); !interval.empty()) {
        at += interval.size();
        out += interval[1] == ',' ? "{0" + std::string(interval.substr(1)) : std::string(interval);
        if (at >= pattern.size() || pattern[at] != '+') continue;
        // There it repeats the interval; in PCRE2 it would make it possessive.
        out.insert(atom, "(?:").append(")+");
        ++at;
        continue;
      }
      if (const bool quantifier = c == '*' || c == '+' || c == '?'; !quantifier) atom = out.size();
    }
    if (c == '\\' && at + 1 < pattern.size()) {
      std::size_t size = 2;
      if ((pattern[at + 1] == 'p' || pattern[at + 1] == 'P') && at + 2 < pattern.size() &&
          pattern[at + 2] == '{')
        size = std::min(pattern.find('}', at), pattern.size() - 1) + 1 - at;
      const std::string_view whole = pattern.substr(at, size);
      std::string name(whole.substr(1));
      bool negative = name[0] >= 'A' && name[0] <= 'Z';
      if (negative) name[0] = static_cast<char>(name[0] - 'A' + 'a');
      if (name.starts_with("p{^")) {
        negative = !negative;
        name.erase(2, 1);
      }
      const auto it = classes().find(name);
      if (name == "b" && !in_class)
        out += word_border(negative);
      else if (it == classes().end() || (in_class && negative))
        out += whole;  // a negated class inside another one stays as PCRE2 has it
      else if (in_class)
        out += it->second;
      else
        out += (negative ? "[^" : "[") + it->second + (name == "w" ? kLatinNumbers : "") + "]";
      at += size;
      continue;
    }
    if (in_class && pattern.substr(at).starts_with("&&"))
      throw Error(where, "must have no intersections of classes (&&); they are not supported",
                  shown(pattern));
    out += c;
    ++at;
    if (in_class && c == '[') {
      if (at >= pattern.size() || pattern[at] != ':')
        throw Error(where, "must have no classes inside of classes; they are not supported", shown(pattern));
      const std::size_t end = pattern.find(":]", at);
      if (end == std::string_view::npos) continue;
      out += pattern.substr(at, end + 2 - at);
      at = end + 2;
    } else if (in_class && c == ']') {
      in_class = false;
    } else if (!in_class && c == '[') {
      in_class = true;
      if (at < pattern.size() && pattern[at] == '^') out += pattern[at++];
      if (at < pattern.size() && pattern[at] == ']') out += pattern[at++];
    } else if (!in_class && c == '(') {
      open_groups.push_back(atom);
      if (at >= pattern.size() || pattern[at] != '?') continue;
      out += pattern[at++];
      // There the flag m lets a point match the ends of lines, which is the flag s of PCRE2.
      for (; at < pattern.size(); ++at) {
        if (pattern[at] != '-' && !std::isalpha(static_cast<unsigned char>(pattern[at]))) break;
        out += pattern[at] == 'm' ? 's' : pattern[at];
      }
    } else if (!in_class && c == ')' && !open_groups.empty()) {
      atom = open_groups.back();
      open_groups.pop_back();
    }
  }
  return out;
}

bool is_unknown_to_normal_forms(std::int32_t code_point) {
  const auto* const after =
      std::upper_bound(std::begin(kNewerThanNormalForms), std::end(kNewerThanNormalForms), code_point,
                       [](std::int32_t value, const std::pair<std::int32_t, std::int32_t>& range) {
                         return value < range.first;
                       });
  return after != std::begin(kNewerThanNormalForms) && code_point <= std::prev(after)->second;
}

}  // namespace meshloom::trainer
