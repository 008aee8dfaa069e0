// Expressions as text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "hal/error.h"
#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/rewrite.h"

namespace meshloom::kernels {
namespace {

constexpr std::array kFunctions{ExprOp::add, ExprOp::sub,       ExprOp::mul,    ExprOp::div,  ExprOp::max,
                                ExprOp::min, ExprOp::gt,        ExprOp::neg,    ExprOp::abs,  ExprOp::exp,
                                ExprOp::log, ExprOp::sqrt,      ExprOp::rsqrt,  ExprOp::tanh, ExprOp::sigmoid,
                                ExprOp::erf, ExprOp::is_finite, ExprOp::select, ExprOp::eq,   ExprOp::floor,
                                ExprOp::mod};

constexpr std::size_t kMaxShown = 200;  // of a text, in an error
constexpr int kMaxDepth = 1000, kMaxPrintedDepth = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

class Parser {
 public:
  Parser(std::string_view text, const std::vector<std::string>& names) : text_(text), names_(names) {}

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
    const std::string_view shown = text_.substr(0, kMaxShown);
    throw hal::Error("expression '" + std::string(shown) + (shown.size() < text_.size() ? "..." : "") +
                         "' at character " + std::to_string(at_),
                     rule, at_ < text_.size() ? "'" + std::string(text_.substr(at_, 12)) + "'" : "the end");
  }
  std::int32_t add(const ExprNode& node) {
    const std::int32_t made = result_.add(node);
    if (result_.nodes.size() > kMaxExpressionNodes)
      fail("must need at most " + std::to_string(kMaxExpressionNodes) + " inputs, numbers and operations");
    return made;
  }
  void space() {
    while (at_ < text_.size() && std::string_view(" \n\t").find(text_[at_]) != std::string_view::npos) ++at_;
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
    if (const std::int32_t number = numbered('t'); number >= 0 && take_operator("=")) return number;
    at_ = start;
    return -1;
  }

  std::int32_t node(ExprOp op, std::int32_t a, std::int32_t b = -1, std::int32_t c = -1) {
    const std::int32_t made = add({.op = op, .a = a, .b = b, .c = c});
    if (op == ExprOp::gt || op == ExprOp::eq || op == ExprOp::is_finite) truths_.insert(made);
    return made;
  }
  std::int32_t constant(double value) { return add({.op = ExprOp::constant, .value = value}); }
  // 1 where `value` is not 0, else 0.
  std::int32_t truth(std::int32_t value) {
    return truths_.count(value) ? value : known(node(ExprOp::select, value, constant(1), constant(0)));
  }
  std::int32_t known(std::int32_t value) {
    truths_.insert(value);
    return value;
  }
  std::int32_t negation(std::int32_t value) { return known(node(ExprOp::sub, constant(1), truth(value))); }

  // An operator that does not go on as a longer one, or a word that stands by itself.
  bool take_operator(std::string_view name) {
    space();
    if (text_.substr(at_, name.size()) != name) return false;
    const char next = at_ + name.size() < text_.size() ? text_[at_ + name.size()] : ' ';
    if (is_letter(name[0]) ? is_letter(next) || is_digit(next) : next == '=') return false;
    at_ += name.size();
    return true;
  }

  // From what binds least to what binds most.
  std::int32_t expression() {
    if (depth_ > kMaxDepth) fail("must not nest deeper than " + std::to_string(kMaxDepth));
    ++depth_;
    std::int32_t left = conjunction();
    while (take_operator("or")) {
      left = truth(left);
      left = known(node(ExprOp::max, left, truth(conjunction())));
    }
    --depth_;
    return left;
  }
  std::int32_t conjunction() {
    std::int32_t left = inversion();
    while (take_operator("and")) {
      left = truth(left);
      left = known(node(ExprOp::mul, left, truth(inversion())));
    }
    return left;
  }
  std::int32_t inversion() {
    bool inverted = false, any = false;
    for (; take_operator("not"); any = true) inverted = !inverted;
    const std::int32_t value = comparison();
    return !any ? value : inverted ? negation(value) : truth(value);
  }
  std::int32_t comparison() {
    std::int32_t left = sum(), all = -1;
    for (;;) {
      const char* const names[] = {"<=", ">=", "==", "!=", "<", ">"};
      const auto* name = std::find_if(std::begin(names), std::end(names),
                                      [&](const char* candidate) { return take_operator(candidate); });
      if (name == std::end(names)) return all >= 0 ? all : left;
      const std::int32_t right = sum();
      const bool equality = (*name)[0] == '=' || (*name)[0] == '!', less = (*name)[0] == '<';
      // a <= b is not a > b.
      const bool inverse = (*name)[0] == '!' || (!equality && (*name)[1] == '=');
      const bool swapped = !equality && less != inverse;
      std::int32_t holds =
          node(equality ? ExprOp::eq : ExprOp::gt, swapped ? right : left, swapped ? left : right);
      if (inverse) holds = negation(holds);
      all = all < 0 ? holds : known(node(ExprOp::mul, all, holds));
      left = right;
    }
  }
  std::int32_t sum() {
    std::int32_t left = product();
    for (;;) {
      if (take_operator("+"))
        left = node(ExprOp::add, left, product());
      else if (take_operator("-"))
        left = node(ExprOp::sub, left, product());
      else
        return left;
    }
  }
  std::int32_t product() {
    std::int32_t left = factor();
    for (;;) {
      if (take_operator("*"))
        left = node(ExprOp::mul, left, factor());
      else if (take_operator("//"))
        left = floored(left, factor());
      else if (take_operator("/"))
        left = node(ExprOp::div, left, factor());
      else if (take_operator("%"))
        left = node(ExprOp::mod, left, factor());
      else
        return left;
    }
  }
  // Right for integers on machines too whose divisions are not rounded well.
  std::int32_t floored(std::int32_t a, std::int32_t b) {
    const std::int32_t whole = node(ExprOp::div, node(ExprOp::sub, a, node(ExprOp::mod, a, b)), b);
    return node(ExprOp::floor, node(ExprOp::add, whole, constant(0.5)));
  }
  std::int32_t factor() {
    space();
    bool negative = false;
    // A number takes its own sign.
    while (at_ + 1 < text_.size() && text_[at_] == '-' && !is_digit(text_[at_ + 1]) &&
           text_[at_ + 1] != '.') {
      negative = !negative;
      ++at_;
      space();
    }
    const std::int32_t value = atom();
    return negative ? node(ExprOp::neg, value) : value;
  }

  std::int32_t atom() {
    if (take('(')) {
      const std::int32_t inner = expression();
      if (!take(')')) fail("must be ')'");
      return inner;
    }
    if (names_.empty())
      if (const std::int32_t index = numbered('x'); index >= 0)
        return add({.op = ExprOp::input, .index = index});
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
      fail("must be a function, " + inputs() + " or a finite number");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return constant(value);
  }
  std::string inputs() const {
    return names_.empty() ? "an input (x0)" : fmt::format("an input ({})", fmt::join(names_, ", "));
  }
  std::int32_t function() {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (const auto input = std::find(names_.begin(), names_.end(), name); input != names_.end())
      return add({.op = ExprOp::input, .index = static_cast<std::int32_t>(input - names_.begin())});
    const auto* op = std::find_if(kFunctions.begin(), kFunctions.end(),
                                  [&](ExprOp candidate) { return to_string(candidate) == name; });
    if (op == kFunctions.end()) {
      at_ = start;
      fail(names_.empty() ? "must be a known function" : "must be " + inputs() + " or a known function");
    }
    if (!take('(')) fail("must be '('");
    std::array<std::int32_t, 3> operands{-1, -1, -1};
    for (int i = 0; i < arity(*op); ++i) {
      if (i > 0 && !take(','))
        fail("must be ',': " + std::string(name) + " takes " + std::to_string(arity(*op)) + " operands");
      operands[static_cast<std::size_t>(i)] = expression();
    }
    if (!take(')')) fail("must be ')'");
    return node(*op, operands[0], operands[1], operands[2]);
  }

  std::string_view text_;
  const std::vector<std::string>& names_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Expression result_;
  std::map<std::int32_t, std::int32_t> temporaries_;
  std::set<std::int32_t> truths_;  // nodes known to be 0 or 1
};

class Printer {
 public:
  explicit Printer(const Expression& expression)
      : e_(expression), uses_(e_.nodes.size(), 0), depth_(e_.nodes.size(), 0), text_(e_.nodes.size()) {
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
    std::string result;
    int next = 0;
    // What is used twice is named: without this a shared subexpression would be printed once per path.
    for (std::size_t i = 0; i < e_.nodes.size(); ++i) {
      if (uses_[i] == 0) continue;
      const ExprNode& node = e_.nodes[i];
      std::string text = text_of(node);
      if (arity(node.op) > 0 && (uses_[i] > 1 || depth_of(node) >= kMaxPrintedDepth)) {
        result += fmt::format("t{}={};", next, text);
        text = fmt::format("t{}", next++);
      } else {
        depth_[i] = depth_of(node);
      }
      text_[i] = std::move(text);
    }
    for (std::size_t r = 0; r < e_.roots.size(); ++r) result += (r ? ";" : "") + text_[at(e_.roots[r])];
    return result;
  }

 private:
  static std::size_t at(std::int32_t node) { return static_cast<std::size_t>(node); }

  int depth_of(const ExprNode& node) const {
    int most = 0;
    for (const std::int32_t operand : {node.a, node.b, node.c})
      if (operand >= 0) most = std::max(most, 1 + depth_[at(operand)]);
    return most;
  }

  // Operands that are used once give theirs away: nothing is kept twice.
  std::string text_of(const ExprNode& node) {
    if (node.op == ExprOp::input) return fmt::format("x{}", node.index);
    if (node.op == ExprOp::constant) return fmt::format("{}", node.value);
    std::string text;
    for (const std::int32_t operand : {node.a, node.b, node.c}) {
      if (operand < 0) continue;
      text += text.empty() ? std::string(to_string(node.op)) + "(" : ",";
      text += uses_[at(operand)] > 1 ? text_[at(operand)] : std::exchange(text_[at(operand)], {});
    }
    return text + ")";
  }

  const Expression& e_;
  std::vector<int> uses_, depth_;  // by node
  std::vector<std::string> text_;  // by node: how others write it
};

}  // namespace

Expression parse_expression(std::string_view text, const std::vector<std::string>& names) {
  return Parser(text, names).parse();
}

std::shared_ptr<const Expression> parsed_expression(std::string_view text) {
  constexpr std::size_t kMaxKept = 512, kMaxKeptLength = 1024;
  thread_local std::map<std::string, std::shared_ptr<const Expression>, std::less<>> kept;
  if (const auto found = kept.find(text); found != kept.end()) return found->second;
  auto parsed = std::make_shared<const Expression>(parse_expression(text));
  if (text.size() > kMaxKeptLength) return parsed;
  if (kept.size() >= kMaxKept) kept.clear();
  kept.emplace(text, parsed);
  return parsed;
}

std::string to_string(const Expression& expression) { return Printer(expression).run(); }

}  // namespace meshloom::kernels
