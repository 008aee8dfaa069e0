#include "trainer/chat/jinja/parser.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "hal/error.h"
#include "trainer/chat/jinja/filters.h"
#include "trainer/chat/jinja/lexer.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"
#include "trainer/chat/jinja/value_tests.h"

namespace meshloom::trainer::jinja {
namespace {

constexpr std::array<std::string_view, 6> kConstants{"true", "false", "True", "False", "none", "None"};
constexpr std::array<std::string_view, 7> kNotBuilt{"block", "extends",    "include", "import",
                                                    "from",  "autoescape", "do"};
// Names whose use in a macro says what arguments it takes.
constexpr std::array<std::string_view, 3> kSpecials{"caller", "kwargs", "varargs"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Parser {
 public:
  Parser(std::string_view source, const std::string& where)
      : where_(where), tokens_(tokens_of(source, where)) {}

  Tree run() {
    tree_.body = statements({});
    return std::move(tree_);
  }

 private:
  // What a macro's body says of the special names: used before it is set.
  struct Specials {
    std::array<bool, 3> used{}, hidden{};
  };

  // The nesting of brackets and blocks.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting)
        parser_.fail("a chat template must not nest deeper than " + std::to_string(kMaxNesting) + " levels");
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(std::string rule, std::string found = {}) const {
    fail_at(here().line, std::move(rule), found);
  }
  [[noreturn]] void fail_at(int line, std::string rule, std::string found = {}) const {
    throw Error(where_ + " line " + std::to_string(line), std::move(rule), std::move(found));
  }

  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
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

  static std::string shown(const Token& token) {
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

  void expect_sign(std::string_view text) {
    if (!skip_sign(text)) fail("'" + std::string(text) + "' must stand here", shown(here()));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail("'" + std::string(text) + "' must stand here", shown(here()));
  }
  std::string expect_any_name() {
    if (!is(Token::name)) fail("a name must stand here", shown(here()));
    return next().text;
  }
  void expect(Token::Kind kind, const char* text) {
    if (!is(kind)) fail(std::string("'") + text + "' must stand here", shown(here()));
    ++at_;
  }

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

  int number_of(const std::string& name) {
    const auto [place, fresh] = numbers_.emplace(name, static_cast<int>(numbers_.size()));
    if (fresh) tree_.names.push_back(name);
    return place->second;
  }

  void note(std::string_view name, bool load) {
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

  // --- statements ---

  static bool among_names(const std::vector<std::string_view>& names, const Token& token) {
    return token.kind == Token::name && std::find(names.begin(), names.end(), token.text) != names.end();
  }

  // Until one of `ends` in a block, which is not taken; to the template's end where there are none.
  Body statements(const std::vector<std::string_view>& ends) {
    const Nested nested(*this);
    Body body;
    for (;;) {
      if (is(Token::data)) {
        Data* data = make<Data>();
        data->text = next().text;
        body.push_back(data);
      } else if (is(Token::print_begin)) {
        ++at_;
        Print* print = make<Print>();
        print->value = tuple(true, false);
        expect(Token::print_end, "}}");
        body.push_back(print);
      } else if (is(Token::block_begin)) {
        ++at_;
        if (among_names(ends, here())) return body;
        statement(body);
        expect(Token::block_end, "%}");
      } else {
        if (!ends.empty())
          fail("'{% " + std::string(ends.back()) + " %}' must stand before the end of the template");
        return body;
      }
    }
  }

  // The rest of an opening tag and what stands until one of `ends`; the end's name is taken.
  Body block(const std::vector<std::string_view>& ends) {
    skip_sign(":");
    expect(Token::block_end, "%}");
    return statements(ends);
  }
  Body whole_block(std::string_view end) {
    Body body = block({end});
    ++at_;
    return body;
  }

  void statement(Body& body) {
    if (!is(Token::name)) fail("a tag must start with a name", shown(here()));
    const std::string tag = here().text;
    if (tag == "if") return body.push_back(if_block());
    if (tag == "for") return body.push_back(for_block());
    if (tag == "set") return body.push_back(set());
    if (tag == "macro") return body.push_back(macro());
    if (tag == "call") return body.push_back(call_block());
    if (tag == "filter") return body.push_back(filter_block());
    if (tag == "with") return body.push_back(with());
    if (tag == "generation") return body.push_back(generation());
    if (tag == "print") return print(body);
    if (tag == "break" || tag == "continue") {
      if (!in_loop_) fail("'" + tag + "' must stand in a for loop");
      LoopControl* control = make<LoopControl>();
      control->flow = tag == "break" ? Flow::leave : Flow::repeat;
      ++at_;
      return body.push_back(control);
    }
    if (among(kNotBuilt, tag)) fail("this statement is not built for chat templates", tag);
    fail("a tag must be one that Jinja knows here", tag);
  }

  Statement* if_block() {
    If* made = make<If>();
    ++at_;
    const ScopedValue<int> conditional(conditions_, conditions_ + 1);
    for (;;) {
      const Expression* condition = tuple(false, false);
      made->branches.emplace_back(condition, block({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else")) made->otherwise = block({"endif"});
      expect_name("endif");
      return made;
    }
  }

  Statement* for_block() {
    For* made = make<For>();
    ++at_;
    const ScopedValue<int> within(loops_, loops_ + 1);
    made->target = target(true, false);
    expect_name("in");
    made->over = tuple(false, true);
    if (skip_name("if")) made->condition = expression();
    if (is_name("recursive")) fail("recursive loops are not built for chat templates", "recursive");
    made->loop = number_of("loop");
    {
      const ScopedValue<bool> inside(in_loop_, true);
      made->body = block({"endfor", "else"});
    }
    if (skip_name("else")) made->otherwise = block({"endfor"});
    expect_name("endfor");
    return made;
  }

  Statement* set() {
    const int line = next().line;
    Target to = target(true, true);
    if (skip_sign("=")) {
      Set* made = make<Set>(line);
      made->target = std::move(to);
      made->value = tuple(true, false);
      return made;
    }
    SetBlock* made = make<SetBlock>(line);
    made->target = std::move(to);
    while (skip_sign("|")) made->filters.push_back(filter());
    made->body = whole_block("endset");
    return made;
  }

  void print(Body& body) {
    ++at_;
    for (bool first = true; !is(Token::block_end); first = false) {
      if (!first) expect_sign(",");
      Print* made = make<Print>();
      made->value = expression();
      body.push_back(made);
    }
  }

  Statement* with() {
    With* made = make<With>();
    ++at_;
    while (!is(Token::block_end)) {
      if (!made->variables.empty()) expect_sign(",");
      Target to = target(true, false);
      expect_sign("=");
      made->variables.emplace_back(std::move(to), expression());
    }
    made->body = whole_block("endwith");
    return made;
  }

  Statement* filter_block() {
    FilterBlock* made = make<FilterBlock>();
    ++at_;
    made->filters.push_back(filter());
    while (skip_sign("|")) made->filters.push_back(filter());
    made->body = whole_block("endfilter");
    return made;
  }

  Statement* generation() {
    Generation* made = make<Generation>();
    ++at_;
    // As a function of its own: a break cannot leave it.
    const ScopedValue<bool> inside(in_loop_, false);
    made->body = whole_block("endgeneration");
    tree_.has_generation = true;
    return made;
  }

  void signature(MacroNode& macro) {
    expect_sign("(");
    bool first = true, with_defaults = false;
    for (; !is_sign(")"); first = false) {
      if (!first) expect_sign(",");
      const std::string name = assigned_name();
      if (name == "caller") fail("a parameter must not be called 'caller' here", macro.name);
      const Expression* otherwise = nullptr;
      if (skip_sign("=")) {
        otherwise = expression();
        with_defaults = true;
      } else if (with_defaults) {
        fail("a parameter without a default must not follow one with", name);
      }
      for (const auto& known : macro.parameters)
        if (known.name == name) fail("a macro's parameters must have different names", name);
      macro.parameters.push_back({name, number_of(name), otherwise});
    }
    expect_sign(")");
  }

  void macro_body(MacroNode& macro, std::string_view end) {
    Specials specials;
    macros_.push_back(&specials);
    {
      const ScopedValue<bool> inside(in_loop_, false);
      macro.body = whole_block(end);
    }
    macros_.pop_back();
    const auto uses = [&](std::size_t i) {
      return specials.used[i] && std::none_of(macro.parameters.begin(), macro.parameters.end(),
                                              [&](const auto& known) { return known.name == kSpecials[i]; });
    };
    macro.uses_caller = uses(0);
    macro.uses_kwargs = uses(1);
    macro.uses_varargs = uses(2);
    macro.caller = number_of("caller");
    macro.kwargs = number_of("kwargs");
    macro.varargs = number_of("varargs");
  }

  Statement* macro() {
    DefineMacro* made = make<DefineMacro>();
    MacroNode* node = make<MacroNode>();
    ++at_;
    node->name = assigned_name();
    note(node->name, false);
    signature(*node);
    macro_body(*node, "endmacro");
    made->macro = node;
    made->variable = number_of(node->name);
    return made;
  }

  Statement* call_block() {
    CallBlock* made = make<CallBlock>();
    MacroNode* node = make<MacroNode>();
    ++at_;
    if (is_sign("(")) signature(*node);
    const int line = here().line;
    made->call = dynamic_cast<const CallOf*>(expression());
    if (!made->call) fail_at(line, "a call block must call something");
    macro_body(*node, "endcall");
    made->caller = node;
    return made;
  }

  std::string assigned_name() {
    const std::string name = expect_any_name();
    if (among(kConstants, name)) fail("nothing can be assigned to this name", name);
    note(name, false);
    return name;
  }

  Target one_target(bool attributes) {
    const Nested nested(*this);
    Target made;
    if (skip_sign("(")) {
      made = target(true, false, true);
      expect_sign(")");
      return made;
    }
    if (!is(Token::name)) fail("a name that is assigned to must stand here", shown(here()));
    const std::string name = here().text;
    if (attributes && is(ahead(), Token::sign, ".")) {
      ++at_, ++at_;
      made.kind = Target::attribute;
      made.variable = number_of(name);
      note(name, true);
      made.attribute_name = expect_any_name();
      return made;
    }
    if (name == "loop" && loops_ > 0) fail("'loop' must not be assigned to in a for loop", name);
    made.variable = number_of(assigned_name());
    return made;
  }

  Target target(bool several, bool attributes, bool in_brackets = false) {
    Target made;
    made.kind = Target::tuple;
    bool comma = false;
    for (;;) {
      if (!made.parts.empty()) {
        if (!several || !skip_sign(",")) break;
        comma = true;
      }
      if (is(Token::print_end) || is(Token::block_end) || is_sign(")") || is_name("in")) break;
      made.parts.push_back(one_target(attributes));
    }
    if (made.parts.size() == 1 && !comma) return Target(made.parts[0]);
    if (made.parts.empty() && !in_brackets) fail("a name that is assigned to must stand here", shown(here()));
    return made;
  }

  // --- expressions ---

  const Expression* expression() {
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

  // One expression, or a tuple without brackets.
  const Expression* tuple(bool conditional, bool for_loop, bool in_brackets = false) {
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

  const Expression* either(bool both) {
    const auto side = [&] { return both ? negation() : either(true); };
    const Expression* left = side();
    while (is_name(both ? "and" : "or")) {
      Either* made = make<Either>();
      ++at_;
      made->both = both;
      made->left = left;
      made->right = side();
      left = made;
    }
    return left;
  }
  const Expression* disjunction() { return either(false); }

  const Expression* negation() {
    if (!is_name("not")) return comparison();
    const Nested nested(*this);
    Not* made = make<Not>();
    ++at_;
    made->operand = negation();
    return made;
  }

  std::optional<Comparison> comparison_sign() {
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

  const Expression* comparison() {
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

  // Operators of one rank, from the left.
  template <typename Operand>
  const Expression* chain(std::initializer_list<std::pair<std::string_view, Binary>> signs, Operand operand) {
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

  const Expression* sum() {
    return chain({{"+", Binary::add}, {"-", Binary::subtract}}, [&] { return concatenation(); });
  }

  const Expression* concatenation() {
    const int line = here().line;
    const Expression* first = product();
    if (!is_sign("~")) return first;
    Concatenation* made = make<Concatenation>(line);
    made->parts.push_back(first);
    while (skip_sign("~")) made->parts.push_back(product());
    return made;
  }

  const Expression* product() {
    return chain(
        {{"*", Binary::multiply}, {"/", Binary::divide}, {"//", Binary::floor_divide}, {"%", Binary::modulo}},
        [&] { return power(); });
  }

  const Expression* power() {
    return chain({{"**", Binary::power}}, [&] { return unary(true); });
  }

  const Expression* unary(bool filters) {
    const Expression* made = nullptr;
    if (is_sign("-") || is_sign("+")) {
      const Nested nested(*this);
      Signed* sign = make<Signed>();
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
  const Expression* literal(const V& value, int line) {
    Literal* made = make<Literal>(line);
    made->value = Value(static_cast<T>(value));
    return made;
  }

  const Expression* primary() {
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

  const Expression* named(const Token& token) {
    const std::string& name = token.text;
    if (name == "true" || name == "True") return literal<bool>(true, token.line);
    if (name == "false" || name == "False") return literal<bool>(false, token.line);
    if (name == "none" || name == "None") return literal<None>(None{}, token.line);
    if (name == "self" || name == "super") fail_at(token.line, "blocks of templates are not built", name);
    note(name, true);
    Name* made = make<Name>(token.line);
    made->name = name;
    made->variable = number_of(name);
    return made;
  }

  const Expression* list(int line) {
    ListOf* made = make<ListOf>(line);
    while (!is_sign("]")) {
      if (!made->items.empty()) expect_sign(",");
      if (is_sign("]")) break;
      made->items.push_back(expression());
    }
    expect_sign("]");
    return made;
  }

  const Expression* dict(int line) {
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

  const Expression* postfix(const Expression* made) {
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

  const Expression* filtered(const Expression* made) {
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

  const Expression* member(const Expression* object) {
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

  const Expression* subscript(const Expression* object) {
    const int line = next().line;
    const Expression* start = is_sign(":") ? nullptr : expression();
    if (is_sign(",")) fail("several subscripts are not built", "[..., ...]");
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
    if (is_sign(",")) fail("several subscripts are not built", "[..., ...]");
    expect_sign("]");
    return made;
  }

  CallArguments arguments() {
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

  const Expression* call(const Expression* callee) {
    CallOf* made = make<CallOf>();
    made->callee = callee;
    made->arguments = arguments();
    return made;
  }

  // A name, or several with dots between.
  std::string dotted_name() {
    std::string name = expect_any_name();
    while (skip_sign(".")) name += "." + expect_any_name();
    return name;
  }

  FilterCall filter() {
    FilterCall made;
    made.line = here().line;
    made.name = dotted_name();
    bool known = false;
    made.function = filter_named(made.name, known);
    if (known && !made.function) fail_at(made.line, "this filter is not built for chat templates", made.name);
    if (!known && conditions_ == 0) fail_at(made.line, "a filter must be one that Jinja knows", made.name);
    if (is_sign("(")) made.arguments = arguments();
    return made;
  }

  const Expression* test(const Expression* input) {
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

  const std::string& where_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int conditions_ =
      0;  // within which unknown filters and tests are refused only if they are reached, as by Jinja2
  int loops_ = 0;         // around this place, also outside of the macro that it stands in
  bool in_loop_ = false;  // that a break here would leave
  std::vector<Specials*> macros_;
  std::map<std::string, int> numbers_;
  Tree tree_;
};

}  // namespace

Tree parse(std::string_view source, const std::string& where) {
  if (source.size() > kMaxSource)
    throw Error(where, "a chat template must have at most " + std::to_string(kMaxSource) + " bytes",
                std::to_string(source.size()));
  if (!valid_utf8(source)) throw Error(where, "a chat template must be UTF-8 text");
  return Parser(source, where).run();
}

}  // namespace meshloom::trainer::jinja
