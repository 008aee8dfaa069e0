#include "trainer/inference/grammar/regex_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using GrammarState = GrammarBuilder::State;
const CodePoints kRegexDigits{{'0', '9'}};
const CodePoints kRegexWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kRegexSpace{{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                             {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                             {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const CodePoints kRegexLines{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// Reads a pattern and appends to the automaton at once; a part that is repeated is read again for each time.
class RegexReader {
 public:
  RegexReader(GrammarBuilder& builder, std::string_view pattern, Spelling spelling, bool search,
              std::string where)
      : builder_(builder),
        pattern_(pattern),
        spelling_(spelling),
        search_(search),
        where_(std::move(where)) {}

  GrammarState whole(GrammarState from) {
    const GrammarState to = alternatives(from, 0);
    if (at_ < pattern_.size()) refuse("a group must be opened before it is closed");
    return to;
  }

 private:
  static constexpr int kDepth = 64;
  static constexpr std::int64_t kTimes = 100'000;
  static constexpr std::size_t kRead = 1'000'000;
  using Part = GrammarBuilder::Part;

  [[noreturn]] void refuse(const std::string& rule, std::size_t size = 1) const {
    throw Error(where_, rule,
                fmt::format("{} at byte {}",
                            at_ < pattern_.size() ? shown(pattern_.substr(at_, size)) : "the end", at_));
  }
  bool more() const { return at_ < pattern_.size(); }
  char peek() const { return more() ? pattern_[at_] : '\0'; }
  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!starts(text)) return false;
    at_ += text.size();
    return true;
  }

  GrammarState anything(GrammarState from) {
    return builder_.repeat(from, 0, GrammarBuilder::kNoBound, [&](GrammarState s) {
      return append_character(builder_, s, CodePoints::all(), spelling_);
    });
  }

  GrammarState alternatives(GrammarState from, int depth) {
    if (depth > kDepth) refuse(fmt::format("groups must be nested at most {} deep", kDepth));
    const GrammarState to = builder_.add_state();
    do {
      GrammarState state = builder_.add_state();
      builder_.empty(from, state);
      const bool top = depth == 0;
      if (!(top && take("^")) && top && search_) state = anything(state);
      state = sequence(state, depth);
      const bool anchored = top && take("$");
      if (anchored && more() && peek() != '|')
        refuse("$ is taken at the end of the pattern or of its alternatives only");
      if (!anchored && top && search_) state = anything(state);
      builder_.empty(state, to);
    } while (take("|"));
    return to;
  }

  GrammarState sequence(GrammarState from, int depth) {
    while (more() && peek() != '|' && peek() != ')' && !(depth == 0 && peek() == '$'))
      from = quantified(from, depth);
    return from;
  }

  GrammarState quantified(GrammarState from, int depth) {
    const std::size_t begin = at_;
    skip_atom(depth);
    const std::size_t end = at_;
    std::int64_t min = 1, max = 1;
    quantifier(min, max);
    const std::size_t after = at_;
    const auto part = [&](GrammarState s) {
      if ((read_ += end - begin) > kRead)
        refuse(fmt::format("must have at most {} bytes when repetitions are written out", kRead));
      at_ = begin;
      s = atom(s, depth);
      at_ = end;
      return s;
    };
    from = min == 1 && max == 1 ? part(from) : builder_.repeat(from, min, max, part);
    at_ = after;
    return from;
  }

  // Moves behind an atom without reading groups more than once on the way.
  void skip_atom(int depth) {
    if (peek() != '(') {
      GrammarBuilder none(where_);
      RegexReader reader(none, pattern_, spelling_, false, where_);
      reader.at_ = at_;
      reader.atom(none.add_state(), depth);
      at_ = reader.at_;
      return;
    }
    int open = 0;
    bool in_class = false;
    const std::size_t begin = at_;
    for (; more(); ++at_) {
      const char c = peek();
      if (c == '\\') {
        ++at_;
        if (!more()) break;
      } else if (in_class) {
        in_class = c != ']';
      } else if (c == '[') {
        in_class = true;
      } else if (c == '(') {
        ++open;
      } else if (c == ')' && --open == 0) {
        ++at_;
        return;
      }
    }
    at_ = begin;
    refuse("a group must be closed");
  }

  std::optional<std::int64_t> number() {
    if (peek() < '0' || peek() > '9') return {};
    std::int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > kTimes) refuse(fmt::format("a repetition must be at most {}", kTimes));
    }
    return value;
  }

  void quantifier(std::int64_t& min, std::int64_t& max) {
    if (take("*")) {
      min = 0, max = GrammarBuilder::kNoBound;
    } else if (take("+")) {
      max = GrammarBuilder::kNoBound;
    } else if (take("?")) {
      min = 0;
    } else if (take("{")) {
      const auto low = number();
      if (!low) refuse("{ must begin a repetition such as {2,5}, or be written \\{");
      min = max = *low;
      if (take(",")) max = number().value_or(GrammarBuilder::kNoBound);
      if (max != GrammarBuilder::kNoBound && max < min) refuse("a repetition's bounds must rise");
      if (!take("}")) refuse("a repetition must end with }");
    } else {
      return;
    }
    take("?");  // lazy
    if (peek() == '+') refuse("possessive quantifiers are not taken");
    if (peek() == '*' || peek() == '?' || peek() == '{') refuse("a quantifier must follow what it repeats");
  }

  GrammarState atom(GrammarState from, int depth) {
    const char c = peek();
    if (c == '(') return group(from, depth);
    if (c == '[') return append_character(builder_, from, char_class(), spelling_);
    if (c == '\\') return append_character(builder_, from, escape(false), spelling_);
    if (take(".")) return append_character(builder_, from, kRegexLines.complement(), spelling_);
    if (c == '^') refuse("^ is taken at the beginning of the pattern or of its alternatives only");
    if (c == '$') refuse("$ is taken at the end of the pattern or of its alternatives only");
    if (c == '*' || c == '+' || c == '?') refuse("a quantifier must follow what it repeats");
    if (c == '{' || c == '}' || c == ']') refuse("must be written with a backslash before it");
    const std::uint32_t character = next_character(pattern_, at_);
    return append_character(builder_, from, {{character, character}}, spelling_);
  }

  GrammarState group(GrammarState from, int depth) {
    const std::size_t begin = at_;
    ++at_;
    if (take("?")) {
      const auto not_taken = [&](const char* what) {
        at_ = begin;
        refuse(fmt::format("{} are not taken", what), 4);
      };
      if (starts("=") || starts("!")) not_taken("lookaheads");
      if (starts("<=") || starts("<!")) not_taken("lookbehinds");
      if (starts(">")) not_taken("atomic groups");
      if (take("<") || take("P<")) {
        while (more() && (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_')) ++at_;
        if (!take(">")) refuse("a group's name must end with >");
      } else if (!take(":")) {
        not_taken("flags in groups");
      }
    }
    const GrammarState to = alternatives(from, depth + 1);
    if (!take(")")) refuse("a group must be closed");
    return to;
  }

  std::uint32_t hex(std::size_t digits) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      if (!std::isxdigit(static_cast<unsigned char>(c))) refuse("must be a hexadecimal digit");
      value = value * 16 + static_cast<std::uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
  }

  CodePoints escape(bool in_class) {
    const std::size_t begin = at_;
    ++at_;
    if (!more()) refuse("a backslash must be followed by what it escapes");
    const char c = peek();
    const auto one = [](std::uint32_t character) { return CodePoints{{character, character}}; };
    if (static_cast<unsigned char>(c) >= 0x80) return one(next_character(pattern_, at_));
    ++at_;
    switch (c) {
      case 'd':
        return kRegexDigits;
      case 'D':
        return kRegexDigits.complement();
      case 'w':
        return kRegexWord;
      case 'W':
        return kRegexWord.complement();
      case 's':
        return kRegexSpace;
      case 'S':
        return kRegexSpace.complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hex(2));
      case 'u': {
        std::uint32_t value = 0;
        if (take("{")) {
          while (peek() != '}' && value <= CodePoints::kLast) value = value * 16 + hex(1);
          if (!take("}")) refuse("must be at most 10ffff");
        } else {
          value = hex(4);
          if (value >= 0xd800 && value < 0xdc00 && take("\\u")) {
            const std::uint32_t low = hex(4);
            if (low < 0xdc00 || low > 0xdfff) refuse("a pair of surrogates must be whole");
            value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
          }
        }
        if (value > CodePoints::kLast || (value >= 0xd800 && value <= 0xdfff)) {
          at_ = begin;
          refuse("must be a character of Unicode", 10);
        }
        return one(value);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        at_ = begin;
        refuse("word boundaries are not taken", 2);
      case 'p':
      case 'P':
        at_ = begin;
        refuse("classes of Unicode properties are not taken", 2);
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        break;
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(c))) {
      at_ = begin;
      refuse(c == 'k' || std::isdigit(static_cast<unsigned char>(c)) ? "backreferences are not taken"
                                                                     : "is no escape that is taken",
             2);
    }
    return one(static_cast<unsigned char>(c));
  }

  CodePoints char_class() {
    ++at_;
    const bool negated = take("^");
    std::vector<CodePoints::Range> ranges;
    const auto member = [&]() -> CodePoints {
      if (peek() == '\\') return escape(true);
      const std::uint32_t character = next_character(pattern_, at_);
      return {{character, character}};
    };
    const auto single = [](const CodePoints& points) {
      return points.ranges().size() == 1 && points.ranges()[0].first == points.ranges()[0].second;
    };
    while (!take("]")) {
      if (!more()) refuse("a class must end with ]");
      const CodePoints low = member();
      if (!more()) refuse("a class must end with ]");
      if (peek() != '-' || starts("-]")) {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
        continue;
      }
      const std::size_t dash = at_++;
      if (!more()) refuse("a class must end with ]");
      const CodePoints high = member();
      if (!single(low) || !single(high) || low.ranges()[0].first > high.ranges()[0].first) {
        at_ = dash;
        refuse("a range of a class must rise from one character to another");
      }
      ranges.emplace_back(low.ranges()[0].first, high.ranges()[0].first);
    }
    const CodePoints set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  GrammarBuilder& builder_;
  const std::string_view pattern_;
  const Spelling spelling_;
  const bool search_;
  const std::string where_;
  std::size_t at_ = 0, read_ = 0;
};

}  // namespace

void check_grammar_text(std::string_view text, const std::string& where) {
  if (text.size() > kGrammarBytes)
    throw Error(where, fmt::format("must have at most {} bytes", kGrammarBytes), std::to_string(text.size()));
  if (const std::size_t bad = first_bad_byte(text); bad != std::string_view::npos)
    throw Error(where, "must be UTF-8 without NUL", fmt::format("another byte at {}", bad));
}

GrammarState append_regex(GrammarBuilder& builder, GrammarState from, std::string_view pattern,
                          Spelling spelling, bool search, const std::string& where) {
  check_grammar_text(pattern, where);
  return RegexReader(builder, pattern, spelling, search, where).whole(from);
}

SharedGrammar grammar_of_regex(std::string_view pattern) {
  GrammarBuilder builder("regex");
  const auto rule = builder.add_rule("regex");
  builder.empty(append_regex(builder, builder.begin(rule), pattern, Spelling::utf8, false, "regex"),
                builder.end(rule));
  return builder.build(rule);
}

SharedGrammar grammar_of_choice(const std::vector<std::string>& texts) {
  GrammarBuilder builder("choice");
  if (texts.empty()) throw Error("choice", "must have at least one text", "none");
  const auto rule = builder.add_rule("choice");
  std::size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) throw Error("choice", "must have no empty text", "\"\"");
    check_grammar_text(text, "choice");
    if ((bytes += text.size()) > kGrammarBytes)
      throw Error("choice", fmt::format("must have at most {} bytes together", kGrammarBytes), "more");
    builder.empty(builder.literal(builder.begin(rule), text), builder.end(rule));
  }
  return builder.build(rule);
}

}  // namespace meshloom::trainer
