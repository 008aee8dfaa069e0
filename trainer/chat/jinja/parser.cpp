#include "trainer/chat/jinja/parser.h"

#include <algorithm>
#include <array>

#include "hal/error.h"
#include "trainer/chat/jinja/expression_parser.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

constexpr std::array<std::string_view, 6> kConstants{"true", "false", "True", "False", "none", "None"};
constexpr std::array<std::string_view, 7> kUnsupported{"block", "extends",    "include", "import",
                                                       "from",  "autoescape", "do"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Parser : ExpressionParser {
 public:
  Parser(std::string_view source, const std::string& where) : ExpressionParser(source, where) {}

  Tree run() {
    tree_.body = statements({});
    return std::move(tree_);
  }

 private:
  static bool among_names(const std::vector<std::string_view>& names, const Token& token) {
    return token.kind == Token::name && std::find(names.begin(), names.end(), token.text) != names.end();
  }

  // Parses up to a tag with one of the names `ends`, which is not consumed, or to the end of the template
  // when there are none.
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

  // Parses the rest of an opening tag and the statements up to one of `ends`. whole_block() also consumes the
  // name of the end.
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
      control->flow = tag == "break" ? Flow::break_loop : Flow::continue_loop;
      ++at_;
      return body.push_back(control);
    }
    if (among(kUnsupported, tag)) fail("this statement is not supported for chat templates", tag);
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
    if (is_name("recursive")) fail("recursive loops are not supported for chat templates", "recursive");
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
    // The block is a function of its own, which break cannot leave.
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

  int loops_ = 0;         // the number of loops around this place, also outside of its macro
  bool in_loop_ = false;  // whether break and continue may stand here
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
