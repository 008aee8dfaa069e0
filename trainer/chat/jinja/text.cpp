#include "trainer/chat/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "trainer/chat/jinja/special_case.h"

namespace meshloom::trainer::jinja {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

template <std::size_t N>
const char32_t* special(const SpecialCase (&table)[N], char32_t code_point) {
  const auto found =
      std::lower_bound(std::begin(table), std::end(table), code_point,
                       [](const SpecialCase& row, char32_t wanted) { return row.code_point < wanted; });
  return found != std::end(table) && found->code_point == code_point ? found->text : nullptr;
}

template <std::size_t N>
void append_cased(std::string& out, char32_t code_point, const SpecialCase (&table)[N],
                  utf8proc_int32_t simple(utf8proc_int32_t)) {
  if (const char32_t* text = special(table, code_point)) {
    for (; *text; ++text) append_code_point(out, *text);
  } else {
    append_code_point(out, static_cast<char32_t>(simple(static_cast<utf8proc_int32_t>(code_point))));
  }
}

void append_upper(std::string& out, char32_t code_point) {
  if (code_point < 0x80)
    out += static_cast<char>(code_point >= 'a' && code_point <= 'z' ? code_point - 32 : code_point);
  else
    append_cased(out, code_point, kSpecialUpper, utf8proc_toupper);
}
void append_title(std::string& out, char32_t code_point) {
  if (code_point < 0x80)
    append_upper(out, code_point);
  else
    append_cased(out, code_point, kSpecialTitle, utf8proc_totitle);
}

bool is_cased(char32_t code_point) {
  return is_lower(code_point) || is_upper(code_point) || is_title(code_point);
}

bool is_case_ignorable(char32_t code_point) {
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code_point == '\'' || code_point == '.' || code_point == ':' || code_point == 0xb7 ||
             code_point == 0x387 || code_point == 0x2018 || code_point == 0x2019 || code_point == 0x2024 ||
             code_point == 0x2027;
  }
}

std::size_t code_point_before(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

// A sigma at the end of a word has another lower case.
bool ends_word(std::string_view text, std::size_t before, std::size_t behind) {
  bool word = false;
  while (before > 0) {
    before = code_point_before(text, before);
    std::size_t at = before;
    const char32_t code_point = next_code_point(text, at);
    if (is_case_ignorable(code_point)) continue;
    word = is_cased(code_point);
    break;
  }
  while (word && behind < text.size()) {
    const char32_t code_point = next_code_point(text, behind);
    if (!is_case_ignorable(code_point)) return !is_cased(code_point);
  }
  return word;
}

void append_lower(std::string& out, char32_t code_point, std::string_view text, std::size_t before,
                  std::size_t behind) {
  if (code_point < 0x80)
    out += static_cast<char>(code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point);
  else if (code_point == 0x130)
    out += "i\xcc\x87";
  else if (code_point == 0x3a3)
    append_code_point(out, ends_word(text, before, behind) ? 0x3c2 : 0x3c3);
  else
    append_code_point(out,
                      static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
}

bool prints(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

template <typename Drop>
std::string_view strip_where(std::string_view text, Side side, Drop drop) {
  std::size_t first = 0, last = text.size();
  if (side != Side::right)
    while (first < last) {
      std::size_t at = first;
      if (!drop(next_code_point(text, at))) break;
      first = at;
    }
  if (side != Side::left)
    while (last > first) {
      const std::size_t start = code_point_before(text, last);
      std::size_t at = start;
      if (!drop(next_code_point(text, at))) break;
      last = start;
    }
  return text.substr(first, last - first);
}

}  // namespace

bool valid_utf8(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                        static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (bytes <= 0) return false;
    at += static_cast<std::size_t>(bytes);
  }
  return true;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  char32_t code_point = first & (0x3f >> more);
  for (int i = 0; i < more && at < text.size(); ++i) code_point = code_point << 6 | (text[at++] & 0x3f);
  return code_point;
}

void append_code_point(std::string& text, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t byte_of(std::string_view text, std::size_t code_point) {
  std::size_t at = 0;
  for (; code_point > 0 && at < text.size(); --code_point) next_code_point(text, at);
  return at;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_alpha(char32_t code_point) {
  const auto kind = category(code_point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t code_point) {
  return is_decimal(code_point) || code_point == 0xb2 || code_point == 0xb3 || code_point == 0xb9 ||
         code_point == 0x2070 || (code_point >= 0x2074 && code_point <= 0x2079) ||
         (code_point >= 0x2080 && code_point <= 0x2089) || (code_point >= 0x2460 && code_point <= 0x2468);
}
bool is_numeric(char32_t code_point) {
  const auto kind = category(code_point);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}
bool is_lower(char32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_LL || code_point == 0xaa || code_point == 0xba;
}
bool is_upper(char32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_LU; }
bool is_title(char32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_LT; }

bool all_lower(std::string_view text) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code_point = next_code_point(text, at);
    if (is_upper(code_point) || is_title(code_point)) return false;
    any |= is_lower(code_point);
  }
  return any;
}

bool all_upper(std::string_view text) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code_point = next_code_point(text, at);
    if (is_lower(code_point) || is_title(code_point)) return false;
    any |= is_upper(code_point);
  }
  return any;
}

std::string_view strip(std::string_view text, Side side) { return strip_where(text, side, is_space); }

std::string_view strip(std::string_view text, Side side, std::string_view code_points) {
  std::u32string set;
  for (std::size_t at = 0; at < code_points.size();) set += next_code_point(code_points, at);
  std::sort(set.begin(), set.end());
  return strip_where(text, side, [&](char32_t code_point) {
    return std::binary_search(set.begin(), set.end(), code_point);
  });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t code_point = next_code_point(text, at);
    if (!((code_point >= 10 && code_point <= 13) || (code_point >= 0x1c && code_point <= 0x1e) ||
          code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029))
      continue;
    if (code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code_point = next_code_point(text, at);
    append_lower(out, code_point, text, start, at);
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;  // after a cased character
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code_point = next_code_point(text, at);
    if (inside)
      append_lower(out, code_point, text, start, at);
    else
      append_title(out, code_point);
    inside = is_cased(code_point);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code_point = next_code_point(text, at);
    if (start == 0)
      append_title(out, code_point);
    else
      append_lower(out, code_point, text, start, at);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code_point = next_code_point(text, at);
    if (is_upper(code_point))
      append_lower(out, code_point, text, start, at);
    else if (is_lower(code_point))
      append_upper(out, code_point);
    else
      append_code_point(out, code_point);
  }
  return out;
}

std::string repr(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  constexpr char kHex[] = "0123456789abcdef";
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code_point = next_code_point(text, at);
    if (code_point == static_cast<char32_t>(quote) || code_point == '\\') {
      out += '\\';
      out += static_cast<char>(code_point);
    } else if (code_point == '\n' || code_point == '\r' || code_point == '\t') {
      out += code_point == '\n' ? "\\n" : code_point == '\r' ? "\\r" : "\\t";
    } else if (prints(code_point)) {
      append_code_point(out, code_point);
    } else {
      const int digits = code_point < 0x100 ? 2 : code_point < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      for (int i = digits - 1; i >= 0; --i) out += kHex[code_point >> (4 * i) & 15];
    }
  }
  return out += quote;
}

}  // namespace meshloom::trainer::jinja
