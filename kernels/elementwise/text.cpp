// Expressions as text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "hal/error.h"
#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/rewrite.h"

namespace meshloom::kernels {
namespace {

constexpr std::array kFunctions{ExprOp::add, ExprOp::sub,       ExprOp::mul,   ExprOp::div,  ExprOp::max,
                                ExprOp::min, ExprOp::gt,        ExprOp::neg,   ExprOp::abs,  ExprOp::exp,
                                ExprOp::log, ExprOp::sqrt,      ExprOp::rsqrt, ExprOp::tanh, ExprOp::sigmoid,
                                ExprOp::erf, ExprOp::is_finite, ExprOp::select};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression parse() {
    do {
      space();
      if (const std::int32_t temporary = definition(); temporary >= 0) {
        temporaries_[temporary] = expression();
      } else {
        result_.roots.push_back(expression());
      }
      space();
    } while (take(';'));
    if (at_ < text_.size()) fail("must end here or go on with ';'");
    if (result_.roots.empty()) fail("must have at least one output");
    return compact(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const {
    throw hal::Error("expression '" + std::string(text_) + "' at character " + std::to_string(at_), rule,
                     at_ < text_.size() ? "'" + std::string(text_.substr(at_, 12)) + "'" : "the end");
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // A letter followed by a number: x3, t0.
  std::int32_t numbered(char letter) {
    if (at_ + 1 >= text_.size() || text_[at_] != letter || !is_digit(text_[at_ + 1])) return -1;
    std::int32_t number = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_ + 1, end, number);
    if (error != std::errc() || number > 9999) fail("must be a small number");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return number;
  }
  // "t0=", or -1 and nothing taken.
  std::int32_t definition() {
    const std::size_t start = at_;
    if (const std::int32_t number = numbered('t'); number >= 0 && take('=')) return number;
    at_ = start;
    return -1;
  }

  std::int32_t expression() {
    space();
    if (depth_ > 1000) fail("must not nest deeper than 1000");
    if (const std::int32_t index = numbered('x'); index >= 0)
      return result_.add({.op = ExprOp::input, .index = index});
    const std::size_t start = at_;
    if (const std::int32_t number = numbered('t'); number >= 0) {
      const auto it = temporaries_.find(number);
      if (it != temporaries_.end()) return it->second;
      at_ = start;
      fail("must be a temporary that was defined before");
    }
    if (at_ < text_.size() && is_letter(text_[at_])) return function();
    return number();
  }
  std::int32_t number() {
    double value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value))
      fail("must be a function, an input (x0) or a finite number");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return result_.add({.op = ExprOp::constant, .value = value});
  }
  std::int32_t function() {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    const auto* op = std::find_if(kFunctions.begin(), kFunctions.end(),
                                  [&](ExprOp candidate) { return to_string(candidate) == name; });
    if (op == kFunctions.end()) {
      at_ = start;
      fail("must be a known function");
    }
    if (!take('(')) fail("must be '('");
    ++depth_;
    std::array<std::int32_t, 3> operands{-1, -1, -1};
    for (int i = 0; i < arity(*op); ++i) {
      if (i > 0 && !take(','))
        fail("must be ',': " + std::string(name) + " takes " + std::to_string(arity(*op)) + " operands");
      operands[static_cast<std::size_t>(i)] = expression();
    }
    if (!take(')')) fail("must be ')'");
    --depth_;
    return result_.add({.op = *op, .a = operands[0], .b = operands[1], .c = operands[2]});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Expression result_;
  std::map<std::int32_t, std::int32_t> temporaries_;
};

class Printer {
 public:
  explicit Printer(const Expression& expression)
      : e_(expression), uses_(e_.nodes.size(), 0), temporary_(e_.nodes.size(), -1) {
    std::vector<bool> live(e_.nodes.size(), false);
    for (std::int32_t root : e_.roots) {
      live[static_cast<std::size_t>(root)] = true;
      ++uses_[static_cast<std::size_t>(root)];
    }
    for (std::size_t i = e_.nodes.size(); i-- > 0;) {
      if (!live[i]) continue;
      for (std::int32_t operand : {e_.nodes[i].a, e_.nodes[i].b, e_.nodes[i].c}) {
        if (operand < 0) continue;
        live[static_cast<std::size_t>(operand)] = true;
        ++uses_[static_cast<std::size_t>(operand)];
      }
    }
  }

  std::string run() {
    std::string text;
    int next = 0;
    // What is used twice is named first: without this a shared subexpression would be printed once per path.
    for (std::size_t i = 0; i < e_.nodes.size(); ++i) {
      if (uses_[i] < 2 || arity(e_.nodes[i].op) == 0) continue;
      text += fmt::format("t{}={};", next, node(static_cast<std::int32_t>(i)));
      temporary_[i] = next++;
    }
    for (std::size_t r = 0; r < e_.roots.size(); ++r) text += (r ? ";" : "") + node(e_.roots[r]);
    return text;
  }

 private:
  std::string node(std::int32_t index) const {
    const auto at = static_cast<std::size_t>(index);
    const ExprNode& n = e_.nodes[at];
    if (temporary_[at] >= 0) return fmt::format("t{}", temporary_[at]);
    if (n.op == ExprOp::input) return fmt::format("x{}", n.index);
    if (n.op == ExprOp::constant) return fmt::format("{}", n.value);
    std::string text = std::string(to_string(n.op)) + "(" + node(n.a);
    if (n.b >= 0) text += "," + node(n.b);
    if (n.c >= 0) text += "," + node(n.c);
    return text + ")";
  }

  const Expression& e_;
  std::vector<int> uses_, temporary_;
};

}  // namespace

Expression parse_expression(std::string_view text) { return Parser(text).parse(); }
std::string to_string(const Expression& expression) { return Printer(expression).run(); }

}  // namespace meshloom::kernels
