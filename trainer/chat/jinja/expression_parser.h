// Parses the expressions of a template. The parser of statements (parser.cpp) builds on it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/chat/jinja/lexer.h"
#include "trainer/chat/jinja/syntax.h"

namespace meshloom::trainer::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::string_view source, const std::string& where);

  // The names whose use in the body of a macro says which arguments it takes.
  static constexpr std::array<std::string_view, 3> kSpecials{"caller", "kwargs", "varargs"};
  // Which of the special names the body of a macro uses, and which it sets before it uses them.
  struct Specials {
    std::array<bool, 3> used{}, hidden{};
  };

  // Counts the nesting of brackets and blocks. Throws Error when there are too many levels.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // Throw Error, with the line of the current token or another one.
  [[noreturn]] void fail(std::string rule, std::string found = {}) const;
  [[noreturn]] void fail_at(int line, std::string rule, std::string found = {}) const;

  // The current token, and the one after it.
  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  // Returns the current token and moves to the next.
  const Token& next() {
    const Token& token = tokens_[at_];
    if (token.kind != Token::end) ++at_;
    return token;
  }
  bool is(Token::Kind kind) const { return here().kind == kind; }
  static bool is(const Token& token, Token::Kind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool is_sign(std::string_view text) const { return is(here(), Token::sign, text); }
  bool is_name(std::string_view text) const { return is(here(), Token::name, text); }
  bool skip_sign(std::string_view text) { return is_sign(text) && (++at_, true); }
  bool skip_name(std::string_view text) { return is_name(text) && (++at_, true); }
  void expect_sign(std::string_view text);
  void expect_name(std::string_view text);
  std::string expect_any_name();
  void expect(Token::Kind kind, const char* text);
  // A token as errors show it.
  static std::string shown(const Token& token);

  template <typename T>
  T* make(int line) {
    auto node = std::make_unique<T>();
    node->line = line;
    T* const made = node.get();
    tree_.nodes.push_back(std::move(node));
    return made;
  }
  template <typename T>
  T* make() {
    return make<T>(here().line);
  }

  // The number of a variable's name.
  int number_of(const std::string& name);
  // Notes in the macros around this place that a name is read (`load`) or set.
  void note(std::string_view name, bool load);

  const Expression* expression();
  // One expression, or a tuple without brackets.
  const Expression* tuple(bool conditional, bool for_loop, bool in_brackets = false);
  FilterCall filter();

  const std::string& where_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  // Within a condition, unknown filters and tests are refused only when they are reached, as in Jinja2.
  int conditions_ = 0;
  std::vector<Specials*> macros_;  // around this place
  Tree tree_;

 private:
  const Expression* logical(bool conjunction);
  const Expression* disjunction() { return logical(false); }
  const Expression* negation();
  std::optional<Comparison> comparison_sign();
  const Expression* comparison();
  // Left-associative operators of one precedence.
  template <typename Operand>
  const Expression* chain(std::initializer_list<std::pair<std::string_view, Binary>> signs, Operand operand);
  const Expression* sum();
  const Expression* concatenation();
  const Expression* product();
  const Expression* power();
  const Expression* unary(bool filters);
  template <typename T, typename V>
  const Expression* literal(const V& value, int line);
  const Expression* primary();
  const Expression* named(const Token& token);
  const Expression* list(int line);
  const Expression* dict(int line);
  const Expression* postfix(const Expression* made);
  const Expression* filtered(const Expression* made);
  const Expression* member(const Expression* object);
  const Expression* subscript(const Expression* object);
  CallArguments arguments();
  const Expression* call(const Expression* callee);
  // A name, or several with dots between them.
  std::string dotted_name();
  const Expression* test(const Expression* input);

  std::map<std::string, int> numbers_;
};

}  // namespace meshloom::trainer::jinja
