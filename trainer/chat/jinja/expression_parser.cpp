#include "trainer/chat/jinja/expression_parser.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {

ExpressionParser::ExpressionParser(std::string_view source, const std::string& where)
    : where_(where), tokens_(tokens_of(source, where)) {}

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting)
    parser_.fail("a chat template must not nest deeper than " + std::to_string(kMaxNesting) + " levels");
}

void ExpressionParser::fail(std::string rule, std::string found) const {
  fail_at(here().line, std::move(rule), std::move(found));
}

void ExpressionParser::fail_at(int line, std::string rule, std::string found) const {
  throw Error(where_ + " line " + std::to_string(line), std::move(rule), std::move(found));
}

void ExpressionParser::expect_sign(std::string_view text) {
  if (!skip_sign(text)) fail("'" + std::string(text) + "' must stand here", shown(here()));
}

void ExpressionParser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail("'" + std::string(text) + "' must stand here", shown(here()));
}

std::string ExpressionParser::expect_any_name() {
  if (!is(Token::name)) fail("a name must stand here", shown(here()));
  return next().text;
}

void ExpressionParser::expect(Token::Kind kind, const char* text) {
  if (!is(kind)) fail(std::string("'") + text + "' must stand here", shown(here()));
  ++at_;
}

std::string ExpressionParser::shown(const Token& token) {
  switch (token.kind) {
    case Token::data:
      return "text";
    case Token::print_begin:
      return "'{{'";
    case Token::print_end:
      return "'}}'";
    case Token::block_begin:
      return "'{%'";
    case Token::block_end:
      return "'%}'";
    case Token::name:
    case Token::sign:
      return "'" + token.text + "'";
    case Token::string:
      return "a text";
    case Token::integer:
    case Token::real:
      return "a number";
    case Token::end:
      return "the end of the template";
  }
  return "";
}

int ExpressionParser::number_of(const std::string& name) {
  const auto [place, fresh] = numbers_.emplace(name, static_cast<int>(numbers_.size()));
  if (fresh) tree_.names.push_back(name);
  return place->second;
}

void ExpressionParser::note(std::string_view name, bool load) {
  const auto place = std::find(kSpecials.begin(), kSpecials.end(), name);
  if (place == kSpecials.end()) return;
  const auto i = static_cast<std::size_t>(place - kSpecials.begin());
  for (Specials* macro : macros_) {
    if (!load)
      macro->hidden[i] = true;
    else if (!macro->hidden[i])
      macro->used[i] = true;
  }
}

const Expression* ExpressionParser::expression() {
  const Nested nested(*this);
  const Expression* left = disjunction();
  while (is_name("if")) {
    Conditional* made = make<Conditional>();
    ++at_;
    made->yes = left;
    made->condition = disjunction();
    if (skip_name("else")) made->no = expression();
    left = made;
  }
  return left;
}

const Expression* ExpressionParser::tuple(bool conditional, bool for_loop, bool in_brackets) {
  const int line = here().line;
  std::vector<const Expression*> items;
  bool comma = false;
  for (;;) {
    if (!items.empty()) {
      if (!skip_sign(",")) break;
      comma = true;
    }
    if (is(Token::print_end) || is(Token::block_end) || is_sign(")") || (for_loop && is_name("recursive")))
      break;
    items.push_back(conditional ? expression() : disjunction());
  }
  if (items.size() == 1 && !comma) return items[0];
  if (items.empty() && !in_brackets) fail("an expression must stand here", shown(here()));
  ListOf* made = make<ListOf>(line);
  made->tuple = true;
  made->items = std::move(items);
  return made;
}

const Expression* ExpressionParser::logical(bool conjunction) {
  const auto side = [&] { return conjunction ? negation() : logical(true); };
  const Expression* left = side();
  while (is_name(conjunction ? "and" : "or")) {
    AndOr* made = make<AndOr>();
    ++at_;
    made->conjunction = conjunction;
    made->left = left;
    made->right = side();
    left = made;
  }
  return left;
}
const Expression* ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Nested nested(*this);
  Not* made = make<Not>();
  ++at_;
  made->operand = negation();
  return made;
}

std::optional<Comparison> ExpressionParser::comparison_sign() {
  static const std::map<std::string, Comparison, std::less<>> kSigns{
      {"==", Comparison::equal},  {"!=", Comparison::unequal},    {"<", Comparison::less},
      {">", Comparison::greater}, {"<=", Comparison::less_equal}, {">=", Comparison::greater_equal}};
  if (is(Token::sign)) {
    const auto found = kSigns.find(here().text);
    if (found == kSigns.end()) return std::nullopt;
    ++at_;
    return found->second;
  }
  if (skip_name("in")) return Comparison::in;
  if (is_name("not") && is(ahead(), Token::name, "in")) {
    at_ += 2;
    return Comparison::not_in;
  }
  return std::nullopt;
}

const Expression* ExpressionParser::comparison() {
  const int line = here().line;
  const Expression* first = sum();
  CompareOf* made = nullptr;
  while (const auto sign = comparison_sign()) {
    if (!made) {
      made = make<CompareOf>(line);
      made->first = first;
    }
    made->rest.emplace_back(*sign, sum());
  }
  return made ? made : first;
}

template <typename Operand>
const Expression* ExpressionParser::chain(std::initializer_list<std::pair<std::string_view, Binary>> signs,
                                          Operand operand) {
  const Expression* left = operand();
  for (;;) {
    const auto found =
        std::find_if(signs.begin(), signs.end(), [&](const auto& sign) { return is_sign(sign.first); });
    if (found == signs.end()) return left;
    BinaryOf* made = make<BinaryOf>();
    ++at_;
    made->operation = found->second;
    made->left = left;
    made->right = operand();
    left = made;
  }
}

const Expression* ExpressionParser::sum() {
  return chain({{"+", Binary::add}, {"-", Binary::subtract}}, [&] { return concatenation(); });
}

const Expression* ExpressionParser::concatenation() {
  const int line = here().line;
  const Expression* first = product();
  if (!is_sign("~")) return first;
  Concatenation* made = make<Concatenation>(line);
  made->parts.push_back(first);
  while (skip_sign("~")) made->parts.push_back(product());
  return made;
}

const Expression* ExpressionParser::product() {
  return chain(
      {{"*", Binary::multiply}, {"/", Binary::divide}, {"//", Binary::floor_divide}, {"%", Binary::modulo}},
      [&] { return power(); });
}

const Expression* ExpressionParser::power() {
  return chain({{"**", Binary::power}}, [&] { return unary(true); });
}

const Expression* ExpressionParser::unary(bool filters) {
  const Expression* made = nullptr;
  if (is_sign("-") || is_sign("+")) {
    const Nested nested(*this);
    UnaryOp* sign = make<UnaryOp>();
    sign->minus = next().text == "-";
    sign->operand = unary(false);
    made = sign;
  } else {
    made = primary();
  }
  made = postfix(made);
  return filters ? filtered(made) : made;
}

template <typename T, typename V>
const Expression* ExpressionParser::literal(const V& value, int line) {
  Literal* made = make<Literal>(line);
  made->value = Value(static_cast<T>(value));
  return made;
}

const Expression* ExpressionParser::primary() {
  const Token& token = next();
  switch (token.kind) {
    case Token::name:
      return named(token);
    case Token::string: {
      std::string text = token.text;
      while (is(Token::string)) text += next().text;
      Literal* made = make<Literal>(token.line);
      const std::size_t code_points = count_code_points(text);
      made->value = Value(std::make_shared<const Text>(Text{std::move(text), code_points, false}));
      return made;
    }
    case Token::integer:
      return literal<std::int64_t>(token.whole, token.line);
    case Token::real:
      return literal<double>(token.number, token.line);
    case Token::sign:
      if (token.text == "(") {
        const Expression* made = tuple(true, false, true);
        expect_sign(")");
        return made;
      }
      if (token.text == "[") return list(token.line);
      if (token.text == "{") return dict(token.line);
      break;
    default:
      break;
  }
  fail_at(token.line, "an expression must stand here", shown(token));
}

const Expression* ExpressionParser::named(const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return literal<bool>(true, token.line);
  if (name == "false" || name == "False") return literal<bool>(false, token.line);
  if (name == "none" || name == "None") return literal<None>(None{}, token.line);
  if (name == "self" || name == "super") fail_at(token.line, "blocks of templates are not supported", name);
  note(name, true);
  Name* made = make<Name>(token.line);
  made->name = name;
  made->variable = number_of(name);
  return made;
}

const Expression* ExpressionParser::list(int line) {
  ListOf* made = make<ListOf>(line);
  while (!is_sign("]")) {
    if (!made->items.empty()) expect_sign(",");
    if (is_sign("]")) break;
    made->items.push_back(expression());
  }
  expect_sign("]");
  return made;
}

const Expression* ExpressionParser::dict(int line) {
  DictOf* made = make<DictOf>(line);
  while (!is_sign("}")) {
    if (!made->items.empty()) expect_sign(",");
    if (is_sign("}")) break;
    const Expression* key = expression();
    expect_sign(":");
    made->items.emplace_back(key, expression());
  }
  expect_sign("}");
  return made;
}

const Expression* ExpressionParser::postfix(const Expression* made) {
  for (;;) {
    if (is_sign("."))
      made = member(made);
    else if (is_sign("["))
      made = subscript(made);
    else if (is_sign("("))
      made = call(made);
    else
      return made;
  }
}

const Expression* ExpressionParser::filtered(const Expression* made) {
  for (;;) {
    if (is_sign("|")) {
      FilterOf* filter_of = make<FilterOf>();
      ++at_;
      filter_of->input = made;
      filter_of->filter = filter();
      made = filter_of;
    } else if (is_name("is")) {
      made = test(made);
    } else if (is_sign("(")) {
      made = call(made);
    } else {
      return made;
    }
  }
}

const Expression* ExpressionParser::member(const Expression* object) {
  const int line = next().line;
  if (is(Token::integer)) {
    ItemOf* made = make<ItemOf>(line);
    made->object = object;
    made->index = literal<std::int64_t>(next().whole, line);
    return made;
  }
  if (!is(Token::name)) fail("a name or a number must stand behind '.'", shown(here()));
  AttributeOf* made = make<AttributeOf>(line);
  made->object = object;
  made->name = next().text;
  return made;
}

const Expression* ExpressionParser::subscript(const Expression* object) {
  const int line = next().line;
  const Expression* start = is_sign(":") ? nullptr : expression();
  if (is_sign(",")) fail("several subscripts are not supported", "[..., ...]");
  if (!skip_sign(":")) {
    expect_sign("]");
    ItemOf* made = make<ItemOf>(line);
    made->object = object;
    made->index = start;
    return made;
  }
  SliceOf* made = make<SliceOf>(line);
  made->object = object;
  made->start = start;
  if (!is_sign(":") && !is_sign("]") && !is_sign(",")) made->stop = expression();
  if (skip_sign(":") && !is_sign("]") && !is_sign(",")) made->step = expression();
  if (is_sign(",")) fail("several subscripts are not supported", "[..., ...]");
  expect_sign("]");
  return made;
}

CallArguments ExpressionParser::arguments() {
  CallArguments made;
  expect_sign("(");
  bool first = true;
  for (; !is_sign(")"); first = false) {
    if (!first) {
      expect_sign(",");
      if (is_sign(")")) break;
    }
    if (is_sign("*")) {
      if (made.rest || made.rest_named) fail("a call's arguments must stand in Python's order", "*");
      ++at_;
      made.rest = expression();
    } else if (is_sign("**")) {
      if (made.rest_named) fail("a call's arguments must stand in Python's order", "**");
      ++at_;
      made.rest_named = expression();
    } else if (is(Token::name) && is(ahead(), Token::sign, "=")) {
      if (made.rest_named) fail("a call's arguments must stand in Python's order", here().text);
      const std::string name = next().text;
      ++at_;
      for (const auto& known : made.named)
        if (known.first == name) fail("an argument must be given once", name);
      made.named.emplace_back(name, expression());
    } else {
      if (made.rest || made.rest_named || !made.named.empty())
        fail("a call's arguments must stand in Python's order", shown(here()));
      made.positional.push_back(expression());
    }
  }
  expect_sign(")");
  return made;
}

const Expression* ExpressionParser::call(const Expression* callee) {
  CallOf* made = make<CallOf>();
  made->callee = callee;
  made->arguments = arguments();
  return made;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_any_name();
  while (skip_sign(".")) name += "." + expect_any_name();
  return name;
}

FilterCall ExpressionParser::filter() {
  FilterCall made;
  made.line = here().line;
  made.name = dotted_name();
  bool known = false;
  made.function = filter_named(made.name, known);
  if (known && !made.function)
    fail_at(made.line, "this filter is not supported for chat templates", made.name);
  if (!known && conditions_ == 0) fail_at(made.line, "a filter must be one that Jinja knows", made.name);
  if (is_sign("(")) made.arguments = arguments();
  return made;
}

const Expression* ExpressionParser::test(const Expression* input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  TestOf* made = make<TestOf>(line);
  made->input = input;
  made->name = dotted_name();
  made->test = test_named(made->name);
  if (!made->test && conditions_ == 0) fail_at(line, "a test must be one that Jinja knows", made->name);
  if (is_sign("(")) {
    made->arguments = arguments();
  } else if (is(Token::string) || is(Token::integer) || is(Token::real) || is_sign("[") || is_sign("{") ||
             (is(Token::name) && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) fail("tests must not be chained", "is");
    made->arguments.positional.push_back(postfix(primary()));
  }
  if (!negated) return made;
  Not* inverse = make<Not>(line);
  inverse->operand = made;
  return inverse;
}

}  // namespace meshloom::trainer::jinja
