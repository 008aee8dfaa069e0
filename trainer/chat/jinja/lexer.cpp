#include "trainer/chat/jinja/lexer.h"

#include <utf8proc.h>

#include <charconv>
#include <cstdlib>

#include "hal/error.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string with_plain_lines(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool digit(char c, int base = 10) {
  if (c >= '0' && c <= '9') return c - '0' < base;
  return base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
}

bool starts_name(char32_t code_point) { return code_point == '_' || is_alpha(code_point); }
bool continues_name(char32_t code_point) {
  if (code_point == '_' || is_alpha(code_point) || is_decimal(code_point)) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return code_point >= 0x80 && (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC);
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where)
      : where_(where), source_(with_plain_lines(source)) {
    // Jinja2's keep_trailing_newline is off.
    if (source_.ends_with('\n')) source_.pop_back();
    text_ = source_;
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(Token::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& rule, std::string found = {}) const {
    throw Error(where_ + " line " + std::to_string(line_), rule, std::move(found));
  }

  bool at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void add(Token::Kind kind, std::string text = {}) { tokens_.push_back({kind, line_, std::move(text)}); }

  // Moves on and records whether a line starts there.
  void take(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) line_ += text_[at_ + i] == '\n';
    at_ += bytes;
    if (bytes > 0) line_starts_ = text_[at_ - 1] == '\n';
  }

  void take_space() {
    while (at_ < text_.size()) {
      std::size_t behind = at_;
      if (!is_space(next_code_point(text_, behind))) break;
      take(behind - at_);
    }
  }

  // The text before a tag, without the white space that the tag's sign or lstrip_blocks removes.
  void add_data(std::string_view data, char sign, bool print) {
    std::string_view kept = data;
    if (sign == '-') {
      kept = strip(data, Side::right);
    } else if (sign != '+' && !print) {
      const std::size_t newline = data.rfind('\n');
      const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((start > 0 || line_starts_) && strip(data.substr(start), Side::both).empty())
        kept = data.substr(0, start);
    }
    if (!kept.empty()) add(Token::data, std::string(kept));
    take(data.size());
  }

  void root() {
    std::size_t open = at_;
    for (;; ++open) {
      open = text_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= text_.size()) {
        open = text_.size();
        break;
      }
      if (const char c = text_[open + 1]; c == '%' || c == '{' || c == '#') break;
    }
    if (open == text_.size()) {
      add(Token::data, std::string(text_.substr(at_)));
      take(text_.size() - at_);
      return;
    }
    const char kind = text_[open + 1];
    const char sign =
        open + 2 < text_.size() && (text_[open + 2] == '-' || text_[open + 2] == '+') ? text_[open + 2] : 0;
    add_data(text_.substr(at_, open - at_), sign, kind == '{');
    if (kind == '#') {
      take(sign ? 3 : 2);
      comment();
    } else if (kind == '%' && raw(sign)) {
      return;
    } else {
      add(kind == '%' ? Token::block_begin : Token::print_begin);
      take(sign ? 3 : 2);
      tag(kind == '%');
    }
  }

  void comment() {
    if (at_ == text_.size()) return;  // as in Jinja2
    const std::size_t close = text_.find("#}", at_);
    if (close == std::string_view::npos) fail("a comment must end with '#}'");
    const char sign = close > at_ ? text_[close - 1] : '\0';
    take(close + 2 - at_);
    close_block(sign);
  }

  // Skips white space after the end of a block, depending on the sign before the end.
  void close_block(char sign) {
    if (sign == '-')
      take_space();
    else if (sign != '+' && peek() == '\n')
      take(1);
  }

  static std::size_t skip_space(std::string_view text, std::size_t at) {
    return text.size() - strip(text.substr(at), Side::left).size();
  }

  // {% raw %}: everything up to {% endraw %} is text.
  bool raw(char sign) {
    std::size_t place = skip_space(text_, at_ + (sign ? 3 : 2));
    if (!text_.substr(place).starts_with("raw")) return false;
    place = skip_space(text_, place + 3);
    const bool strips = text_.substr(place).starts_with("-%}");
    if (!strips && !text_.substr(place).starts_with("%}")) return false;
    take(place + (strips ? 3 : 2) - at_);
    if (strips) take_space();
    if (at_ == text_.size()) return true;  // as in Jinja2
    for (std::size_t open = at_;; ++open) {
      open = text_.find("{%", open);
      if (open == std::string_view::npos) fail("{% raw %} must end with {% endraw %}");
      std::size_t inside = open + 2;
      const char before =
          inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+') ? text_[inside] : 0;
      inside = skip_space(text_, inside + (before ? 1 : 0));
      if (!text_.substr(inside).starts_with("endraw")) continue;
      inside = skip_space(text_, inside + 6);
      const char after =
          inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+') ? text_[inside] : 0;
      if (!text_.substr(inside + (after ? 1 : 0)).starts_with("%}")) continue;
      add_data(text_.substr(at_, open - at_), before, false);
      take(inside + (after ? 3 : 2) - at_);
      close_block(after);
      return true;
    }
  }

  void tag(bool block) {
    std::string open;  // brackets
    const std::string_view close = block ? "%}" : "}}";
    for (;;) {
      take_space();
      if (at_ >= text_.size()) fail(std::string("a tag must end with '") + std::string(close) + "'");
      if (open.empty()) {
        const char sign = peek() == '-' || (block && peek() == '+') ? peek() : '\0';
        if (text_.substr(at_ + (sign ? 1 : 0)).starts_with(close)) {
          add(block ? Token::block_end : Token::print_end);
          take(sign ? 3 : 2);
          if (block)
            close_block(sign);
          else if (sign == '-')
            take_space();
          return;
        }
      }
      if (digit(peek()))
        number();
      else if (peek() == '\'' || peek() == '"')
        string();
      else if (!name())
        sign(open);
    }
  }

  void number() {
    std::size_t size = 0;
    const auto digits = [&](std::size_t from, int base) {  // "_" may stand between two digits
      std::size_t at = from;
      while (digit(peek(at), base) || (at > from && peek(at) == '_' && digit(peek(at + 1), base))) ++at;
      return at;
    };
    const char second = static_cast<char>(peek(1) | 0x20);
    const int base = peek() != '0' ? 10 : second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    std::string text;
    const auto taken = [&] {
      for (const char c : text_.substr(at_, size))
        if (c != '_') text += c;
    };
    if (base != 10) {
      size = digits(peek(2) == '_' ? 3 : 2, base);
      if (size <= 3 && !digit(peek(2), base))
        fail("a number must have digits", std::string(text_.substr(at_, 2)));
      taken();
      return whole(text.substr(2), base, size);
    }
    size = digits(0, 10);
    bool real = false;
    if (const bool member = at_ > 0 && text_[at_ - 1] == '.'; !member) {
      if (peek(size) == '.' && digit(peek(size + 1))) {
        size = digits(size + 1, 10);
        real = true;
      }
      if ((peek(size) | 0x20) == 'e') {
        const std::size_t sign = peek(size + 1) == '+' || peek(size + 1) == '-' ? 1 : 0;
        if (digit(peek(size + 1 + sign))) {
          size = digits(size + 1 + sign, 10);
          real = true;
        }
      }
    }
    taken();
    if (!real) {
      if (text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
        fail("an integer must not start with 0", text);
      return whole(text, 10, size);
    }
    Token token{Token::real, line_, {}};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token.number);
    if (error == std::errc::invalid_argument || end != text.data() + text.size())
      fail("a number must have digits", text);
    if (error == std::errc::result_out_of_range) token.number = std::strtod(text.c_str(), nullptr);
    tokens_.push_back(std::move(token));
    take(size);
  }

  void whole(const std::string& text, int base, std::size_t size) {
    Token token{Token::integer, line_, {}};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token.whole, base);
    if (error != std::errc{} || end != text.data() + text.size())
      fail("an integer must fit into 64 bits", text);
    tokens_.push_back(std::move(token));
    take(size);
  }

  bool name() {
    std::size_t end = at_;
    if (!starts_name(next_code_point(text_, end))) return false;
    while (end < text_.size()) {
      std::size_t behind = end;
      if (!continues_name(next_code_point(text_, behind))) break;
      end = behind;
    }
    add(Token::name, std::string(text_.substr(at_, end - at_)));
    take(end - at_);
    return true;
  }

  void sign(std::string& open) {
    for (const std::string_view sign : kSigns) {
      if (!at(sign)) continue;
      const char c = sign[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c)
          fail(open.empty() ? "a bracket must be opened before it is closed"
                            : std::string("the bracket that is closed here must be '") + open.back() + "'",
               std::string(sign));
        open.pop_back();
      }
      add(Token::sign, std::string(sign));
      take(sign.size());
      return;
    }
    std::size_t behind = at_;
    next_code_point(text_, behind);
    fail("this character has no meaning in a tag", std::string(text_.substr(at_, behind - at_)));
  }

  void string() {
    const char quote = peek();
    std::string text;
    std::size_t place = at_ + 1;
    for (;;) {
      if (place >= text_.size()) fail(std::string("a text must end with ") + quote);
      const char c = text_[place++];
      if (c == quote) break;
      if (c == '\\')
        escape(text, place);
      else
        text += c;
    }
    add(Token::string, std::move(text));
    take(place - at_);
  }

  void escape(std::string& text, std::size_t& place) {
    if (place >= text_.size()) fail("a text must not end with a backslash");
    const char c = text_[place++];
    const auto coded = [&](int digits) {
      char32_t code_point = 0;
      for (int i = 0; i < digits; ++i, ++place) {
        if (place >= text_.size() || !digit(text_[place], 16)) fail("an escape must have all of its digits");
        const char d = text_[place];
        code_point = code_point * 16 + static_cast<char32_t>(d <= '9' ? d - '0' : (d | 0x20) - 'a' + 10);
      }
      if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000))
        fail("an escape must name a character of Unicode");
      append_code_point(text, code_point);
    };
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        text += c;
        return;
      case 'a':
        text += '\a';
        return;
      case 'b':
        text += '\b';
        return;
      case 'f':
        text += '\f';
        return;
      case 'n':
        text += '\n';
        return;
      case 'r':
        text += '\r';
        return;
      case 't':
        text += '\t';
        return;
      case 'v':
        text += '\v';
        return;
      case 'x':
        return coded(2);
      case 'u':
        return coded(4);
      case 'U':
        return coded(8);
      case 'N':
        fail("escapes by a character's name are not supported", "\\N");
      default:
        break;
    }
    if (digit(c, 8)) {
      char32_t code_point = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && place < text_.size() && digit(text_[place], 8); ++i)
        code_point = code_point * 8 + static_cast<char32_t>(text_[place++] - '0');
      append_code_point(text, code_point);
      return;
    }
    if (static_cast<unsigned char>(c) >= 0x80)
      fail("a backslash before a character outside ASCII is not supported");
    text += '\\';
    text += c;
  }

  const std::string& where_;
  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace meshloom::trainer::jinja
