#include "trainer/inference/grammar/gbnf_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "hal/error.h"
#include "trainer/inference/grammar/code_points.h"
#include "trainer/inference/grammar/regex_grammar.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using GrammarState = GrammarBuilder::State;

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  SharedGrammar read() {
    space(true);
    while (more()) rule();
    for (const auto& [name, known] : rules_)
      if (!known.defined)
        throw Error("grammar", "every rule that is used must be defined", "no rule " + shown(name));
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw Error("grammar", "must have the rule 'root'", "none");
    return builder_.build(root->second.rule);
  }

 private:
  static constexpr int kDepth = 64;
  static constexpr std::int64_t kTimes = 100'000;
  static constexpr std::size_t kRead = 1'000'000;
  struct Known {
    GrammarBuilder::Rule rule;
    bool defined = false;
  };

  [[noreturn]] void refuse(const std::string& rule) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())),
                   '\n') +
        1;
    throw Error(fmt::format("grammar, line {}", line), rule,
                at_ < text_.size() ? shown(text_.substr(at_, 12)) : "the end");
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  // Blanks and comments, and with `lines` ends of lines.
  void space(bool lines) {
    for (; more(); ++at_) {
      if (peek() == '#')
        while (more() && peek() != '\n') ++at_;
      if (!(peek() == ' ' || peek() == '\t' || (lines && (peek() == '\n' || peek() == '\r')))) return;
    }
  }
  static bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }
  std::string name() {
    const std::size_t begin = at_;
    while (more() && is_name(peek())) ++at_;
    if (at_ == begin) refuse("must be a rule's name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  Known& known(const std::string& name) {
    const auto found = rules_.find(name);
    return found != rules_.end() ? found->second
                                 : rules_.emplace(name, Known{builder_.add_rule(name)}).first->second;
  }

  void rule() {
    const std::size_t begin = at_;
    const std::string called = name();
    Known& rule = known(called);
    if (std::exchange(rule.defined, true)) {
      at_ = begin;
      refuse("a rule must be defined once");
    }
    space(false);
    if (!take("::=")) refuse("a rule's name must be followed by ::=");
    space(true);
    const GrammarBuilder::Rule id = rule.rule;
    builder_.empty(alternatives(builder_.begin(id), 0), builder_.end(id));
    if (more() && peek() != '\n' && peek() != '\r') refuse("a rule must end with its line");
    space(true);
  }

  GrammarState alternatives(GrammarState from, int depth) {
    if (depth > kDepth) refuse(fmt::format("groups must be nested at most {} deep", kDepth));
    const GrammarState to = builder_.add_state();
    do {
      space(true);
      GrammarState state = builder_.add_state();
      builder_.empty(from, state);
      builder_.empty(sequence(state, depth), to);
    } while (take("|"));
    return to;
  }

  GrammarState sequence(GrammarState from, int depth) {
    for (;;) {
      space(depth > 0);
      const char c = peek();
      if (c == '"' || c == '[' || c == '(' || c == '.' || is_name(c))
        from = repeated(from, depth);
      else
        return from;
    }
  }

  GrammarState repeated(GrammarState from, int depth) {
    const std::size_t begin = at_;
    skip_item();
    const std::size_t end = at_;
    space(depth > 0);
    std::int64_t min = 1, max = 1;
    if (!times(min, max)) at_ = end;
    const std::size_t after = at_;
    const auto part = [&](GrammarState state) {
      if ((read_ += end - begin) > kRead)
        refuse(fmt::format("must have at most {} bytes when repetitions are written out", kRead));
      at_ = begin;
      return item(state, depth);
    };
    from = min == 1 && max == 1 ? part(from) : builder_.repeat(from, min, max, part);
    at_ = after;
    return from;
  }

  bool times(std::int64_t& min, std::int64_t& max) {
    if (take("*")) return min = 0, max = GrammarBuilder::kNoBound, true;
    if (take("+")) return max = GrammarBuilder::kNoBound, true;
    if (take("?")) return min = 0, true;
    if (!take("{")) return false;
    const auto number = [&]() -> std::optional<std::int64_t> {
      space(false);
      std::optional<std::int64_t> value;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        value = value.value_or(0) * 10 + (peek() - '0');
        if (*value > kTimes) refuse(fmt::format("a repetition must be at most {}", kTimes));
      }
      space(false);
      return value;
    };
    const auto low = number();
    if (!low) refuse("a repetition must begin with a number");
    min = max = *low;
    if (take(",")) max = number().value_or(GrammarBuilder::kNoBound);
    if (!take("}")) refuse("a repetition must end with }");
    if (max != GrammarBuilder::kNoBound && max < min) refuse("a repetition's bounds must rise");
    return true;
  }

  // Moves behind an item without adding it.
  void skip_item() {
    const auto text = [&](char close) {
      const std::size_t begin = at_;
      for (++at_; more() && peek() != close; ++at_)
        if (peek() == '\\') ++at_;
      if (!take({&close, 1})) {
        at_ = begin;
        refuse(close == '"' ? "a literal must end with a quote" : "a class must end with ]");
      }
    };
    const char c = peek();
    if (c == '"') return text('"');
    if (c == '[') return text(']');
    if (take(".")) return;
    if (c != '(') {
      name();
      return;
    }
    int open = 0;
    const std::size_t begin = at_;
    while (more()) {
      if (peek() == '"') {
        text('"');
      } else if (peek() == '[') {
        text(']');
      } else if (peek() == '#') {
        space(false);
      } else {
        const char bracket = text_[at_++];
        if (bracket == '(') ++open;
        if (bracket == ')' && --open == 0) return;
      }
    }
    at_ = begin;
    refuse("a group must be closed");
  }

  GrammarState item(GrammarState from, int depth) {
    if (take("\"")) {
      while (!take("\"")) {
        const std::uint32_t c = character();
        from = append_character(builder_, from, {{c, c}}, Spelling::utf8);
      }
      return from;
    }
    if (take("[")) return append_character(builder_, from, char_class(), Spelling::utf8);
    if (take(".")) return append_character(builder_, from, CodePoints::all(), Spelling::utf8);
    if (take("(")) {
      const GrammarState to = alternatives(from, depth + 1);
      if (!take(")")) refuse("a group must be closed");
      return to;
    }
    const GrammarBuilder::Rule rule = known(name()).rule;
    return builder_.called(from, rule);
  }

  CodePoints char_class() {
    const bool negated = take("^");
    std::vector<CodePoints::Range> ranges;
    while (!take("]")) {
      const std::uint32_t low = character();
      std::uint32_t high = low;
      if (peek() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        high = character();
        if (high < low) refuse("a range of a class must rise");
      }
      ranges.emplace_back(low, high);
    }
    const CodePoints set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  std::uint32_t character() {
    if (!more()) refuse("a literal or a class must be closed");
    if (peek() != '\\') return next_character(text_, at_);
    ++at_;
    const char c = peek();
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    static constexpr std::string_view kLetters = "nrt\"\\[]-^", kMeant = "\n\r\t\"\\[]-^";
    if (const std::size_t at = kLetters.find(c); more() && at != std::string_view::npos) {
      ++at_;
      return static_cast<unsigned char>(kMeant[at]);
    }
    if (digits == 0) refuse("must be an escape such as \\n, \\\" or \\u00e9");
    ++at_;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char digit = peek();
      if (!std::isxdigit(static_cast<unsigned char>(digit))) refuse("must be a hexadecimal digit");
      value = value * 16 + static_cast<std::uint64_t>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    if (value > CodePoints::kLast || (value >= 0xd800 && value <= 0xdfff))
      refuse("must be a character of Unicode");
    return static_cast<std::uint32_t>(value);
  }

  const std::string_view text_;
  std::size_t at_ = 0, read_ = 0;
  GrammarBuilder builder_{"grammar"};
  std::map<std::string, Known> rules_;
};

}  // namespace

SharedGrammar grammar_of_gbnf(std::string_view text) {
  check_grammar_text(text, "grammar");
  return GbnfReader(text).read();
}

}  // namespace meshloom::trainer
