// Evaluates the nodes of a template.
#include "trainer/chat/jinja/syntax.h"

#include <algorithm>

#include "trainer/chat/jinja/run.h"

namespace meshloom::trainer::jinja {
namespace {

using ScopePointer = std::shared_ptr<Scope>;

struct Macro final : Object {
  const MacroNode* node = nullptr;
  ScopePointer closure;

  std::string type() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::string repr(Run&) override {
    return node->name.empty() ? "<Macro anonymous>" : "<Macro '" + node->name + "'>";
  }

  std::optional<Value> attribute(Run& run, const std::string& name) override {
    if (name == "name") return node->name.empty() ? Value(None{}) : make_text(run, node->name);
    if (name == "catch_kwargs") return Value(node->uses_kwargs);
    if (name == "catch_varargs") return Value(node->uses_varargs);
    if (name == "caller") return Value(node->uses_caller);
    if (name != "arguments") return std::nullopt;
    Values names;
    for (const auto& parameter : node->parameters) names.push_back(make_text(run, parameter.name));
    return make_tuple(run, std::move(names));
  }

  Value call(Run& run, Arguments& arguments) override {
    const ScopedValue<ScopePointer> inside(run.scope, run.enter(closure));
    bind(run, arguments);
    return make_text(run, run.captured([&] { run_body(run, node->body); }));
  }

  void bind(Run& run, Arguments& arguments) const {
    Scope& scope = *run.scope;
    const auto take = [&](const std::string& name) -> std::optional<Value> {
      const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& argument) { return argument.first == name; });
      if (found == arguments.named.end()) return std::nullopt;
      std::optional<Value> value = std::move(found->second);
      arguments.named.erase(found);
      return value;
    };
    const std::size_t given = std::min(arguments.positional.size(), node->parameters.size());
    std::vector<bool> lacks(node->parameters.size());
    for (std::size_t i = 0; i < node->parameters.size(); ++i) {
      const auto& parameter = node->parameters[i];
      std::optional<Value> value = i < given ? std::optional(arguments.positional[i]) : take(parameter.name);
      lacks[i] = !value;
      scope.set(parameter.variable,
                value ? *value : Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
    if (node->uses_caller) {
      const auto caller = take("caller");
      scope.set(node->caller, caller && !caller->is_none() ? *caller : Value::undefined("No caller defined"));
    }
    if (node->uses_kwargs) {
      std::vector<std::pair<Value, Value>> rest;
      for (const auto& [name, value] : arguments.named) rest.emplace_back(make_text(run, name), value);
      scope.set(node->kwargs, make_dict(run, rest));
    } else if (!arguments.named.empty()) {
      run.fail("the macro '" + node->name + "' has no parameter of this name", arguments.named[0].first);
    }
    if (node->uses_varargs)
      scope.set(node->varargs,
                make_tuple(run, Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                                       arguments.positional.end())));
    else if (arguments.positional.size() > given)
      run.fail("the macro '" + node->name + "' takes at most " + std::to_string(given) + " arguments",
               std::to_string(arguments.positional.size()));
    for (std::size_t i = 0; i < lacks.size(); ++i)
      if (lacks[i] && node->parameters[i].otherwise)
        scope.set(node->parameters[i].variable, (*node->parameters[i].otherwise)(run));
  }
};

Value make_macro(Run& run, const MacroNode* node) {
  run.bytes(128);
  run.keep(run.scope);
  auto macro = std::make_shared<Macro>();
  macro->node = node;
  macro->closure = run.scope;
  return Value(std::shared_ptr<Object>(std::move(macro)));
}

// The variable `loop`.
struct Loop final : Object {
  std::function<std::optional<Value>()> source;  // empty once the loop has ended
  std::optional<std::size_t> known_length;
  std::optional<Value> after, current, before;
  std::int64_t index0 = -1;
  int levels = 0;
  std::optional<Values> last_values;  // the values of the last call of changed()

  std::string type() const override { return "LoopContext"; }
  int depth() const override { return levels; }

  std::optional<Value> pull() { return source ? source() : std::nullopt; }
  const std::optional<Value>& peek() {
    if (!after) after = pull();
    return after;
  }
  bool advance() {
    std::optional<Value> value = after ? std::exchange(after, std::nullopt) : pull();
    if (!value) return false;
    ++index0;
    before = std::exchange(current, std::move(value));
    return true;
  }
  std::optional<std::size_t> length(Run& run) override {
    if (known_length) return known_length;
    // Python makes a list of the remaining items.
    auto rest = std::make_shared<Values>();
    while (auto item = pull()) {
      run.bytes(32);
      rest->push_back(*std::move(item));
    }
    known_length = rest->size() + static_cast<std::size_t>(index0 + 1) + (after ? 1 : 0);
    source = [rest, at = std::size_t{0}]() mutable -> std::optional<Value> {
      return at < rest->size() ? std::optional((*rest)[at++]) : std::nullopt;
    };
    return known_length;
  }
  std::string repr(Run& run) override {
    return "<LoopContext " + std::to_string(index0 + 1) + "/" + std::to_string(*length(run)) + ">";
  }
  std::optional<Value> attribute(Run& run, const std::string& name) override;
};

// loop.cycle and loop.changed.
struct LoopMethod final : Object {
  std::shared_ptr<Loop> loop;
  bool cycle = false;
  std::string type() const override { return "method"; }
  bool callable() const override { return true; }
  int depth() const override { return loop->depth() + 1; }
  Value call(Run& run, Arguments& arguments) override {
    Values& values = arguments.positional;
    if (!arguments.named.empty())
      run.fail("a method of loop has no parameter of this name", arguments.named[0].first);
    if (cycle) {
      if (values.empty()) run.fail("loop.cycle() takes the values to go through");
      return values[static_cast<std::size_t>(loop->index0) % values.size()];
    }
    const bool same = loop->last_values && loop->last_values->size() == values.size() &&
                      std::equal(values.begin(), values.end(), loop->last_values->begin(),
                                 [&](const Value& a, const Value& b) { return a.equals(run, b); });
    if (!same) {
      for (const Value& value : values) loop->levels = std::max(loop->levels, value.depth() + 1);
      if (loop->levels > kMaxDepth) run.fail("values of a template must not nest deeper", "loop.changed");
      loop->last_values = values;
    }
    return Value(!same);
  }
};

Value loop_method(Run& run, Loop& loop, bool cycle) {
  run.bytes(64);
  auto method = std::make_shared<LoopMethod>();
  method->loop = std::static_pointer_cast<Loop>(loop.shared_from_this());
  method->cycle = cycle;
  return Value(std::shared_ptr<Object>(std::move(method)));
}

std::optional<Value> Loop::attribute(Run& run, const std::string& name) {
  const std::int64_t length_now =
      name.starts_with("rev") || name == "length" ? static_cast<std::int64_t>(*length(run)) : 0;
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "revindex") return Value(length_now - index0);
  if (name == "revindex0") return Value(length_now - index0 - 1);
  if (name == "length") return Value(length_now);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(!peek());
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem")
    return index0 == 0 || !before ? Value::undefined("there is no previous item") : *before;
  if (name == "nextitem") {
    const auto& item = peek();
    return item ? *item : Value::undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") return loop_method(run, *this, name == "cycle");
  return std::nullopt;
}

}  // namespace

Value Expression::operator()(Run& run) const {
  run.step();
  const Run::Nested nested(run);
  run.line = line;
  return evaluate(run);
}

Flow Statement::operator()(Run& run) const {
  run.step();
  const Run::Nested nested(run);
  run.line = line;
  return execute(run);
}

Flow run_body(Run& run, const Body& body) {
  for (const Statement* statement : body)
    if (const Flow flow = (*statement)(run); flow != Flow::normal) return flow;
  return Flow::normal;
}

Arguments CallArguments::evaluate(Run& run) const {
  Arguments made;
  run.bytes(32 * (positional.size() + named.size()));
  for (const Expression* argument : positional) made.positional.push_back((*argument)(run));
  for (const auto& [name, argument] : named) made.named.emplace_back(name, (*argument)(run));
  if (rest)
    for (Value& value : all_of(run, (*rest)(run))) made.positional.push_back(std::move(value));
  if (!rest_named) return made;
  const Value more = (*rest_named)(run);
  if (!more.dict()) run.fail("a dict must follow ** in a call", more.type());
  for (const auto& [name, value] : more.dict()->items) {
    if (!name.text()) run.fail("the dict after ** in a call must have names as keys", name.type());
    run.step(made.named.size());
    for (const auto& known : made.named)
      if (known.first == name.text()->bytes) run.fail("an argument must be given once", known.first);
    run.bytes(name.text()->bytes.size() + 64);
    made.named.emplace_back(name.text()->bytes, value);
  }
  return made;
}

Value FilterCall::apply(Run& run, const Value& input) const {
  if (!function) run.fail("a filter must be one that Jinja knows", name);
  Arguments given = arguments.evaluate(run);
  run.line = line;
  charge(run, input);
  for (const Value& value : given.positional) charge(run, value);
  for (const auto& [name, value] : given.named) charge(run, value);
  return function(run, input, given);
}

void Target::assign(Run& run, const Value& value) const {
  if (kind == name) return run.scope->set(variable, value);
  if (kind == attribute) {
    const Value* found = run.scope->find(variable);
    auto* space = found ? dynamic_cast<Namespace*>(found->object()) : nullptr;
    if (!space)
      run.fail("only attributes of a namespace can be set",
               found ? found->type() : std::string("an undefined variable"));
    return set_attribute(run, *space, make_text(run, attribute_name), value);
  }
  const Values values = all_of(run, value);
  if (values.size() != parts.size())
    run.fail("as many values as names must stand in an assignment",
             std::to_string(values.size()) + " for " + std::to_string(parts.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].assign(run, values[i]);
}

Value Name::evaluate(Run& run) const {
  const Value* found = run.scope->find(variable);
  return found ? *found : Value::undefined("'" + name + "' is undefined");
}

Value ListOf::evaluate(Run& run) const {
  Values values;
  values.reserve(items.size());
  for (const Expression* item : items) values.push_back((*item)(run));
  return tuple ? make_tuple(run, std::move(values)) : make_list(run, std::move(values));
}

Value DictOf::evaluate(Run& run) const {
  std::vector<std::pair<Value, Value>> values;
  for (const auto& [key, value] : items) {
    Value name = (*key)(run);
    values.emplace_back(std::move(name), (*value)(run));
  }
  return make_dict(run, values);
}

Value AttributeOf::evaluate(Run& run) const {
  const Value of = (*object)(run);
  run.line = line;
  return attribute(run, of, name);
}

Value ItemOf::evaluate(Run& run) const {
  const Value of = (*object)(run);
  const Value at = (*index)(run);
  run.line = line;
  return item(run, of, at);
}

Value SliceOf::evaluate(Run& run) const {
  const Value of = (*object)(run);
  const auto bound = [&](const Expression* part) { return part ? (*part)(run) : Value(None{}); };
  const Value from = bound(start), to = bound(stop), by = bound(step);
  run.line = line;
  return slice(run, of, from, to, by);
}

Value CallOf::evaluate(Run& run) const {
  const Value function = (*callee)(run);
  Arguments given = arguments.evaluate(run);
  run.line = line;
  return call(run, function, given);
}

Value CallOf::call_with(Run& run, const Value& caller) const {
  const Value function = (*callee)(run);
  Arguments given = arguments.evaluate(run);
  run.line = line;
  given.named.emplace_back("caller", caller);
  return call(run, function, given);
}

Value FilterOf::evaluate(Run& run) const { return filter.apply(run, (*input)(run)); }

Value TestOf::evaluate(Run& run) const {
  if (!test) run.fail("a test must be one that Jinja knows", name);
  const Value of = (*input)(run);
  Arguments given = arguments.evaluate(run);
  run.line = line;
  charge(run, of);
  return Value(test(run, of, given));
}

Value UnaryOp::evaluate(Run& run) const {
  const Value value = (*operand)(run);
  return minus ? negative(run, value) : positive(run, value);
}

Value BinaryOf::evaluate(Run& run) const {
  const Value a = (*left)(run);
  const Value b = (*right)(run);
  run.line = line;
  return binary(run, operation, a, b);
}

Value Concatenation::evaluate(Run& run) const {
  std::string text;
  for (const Expression* part : parts) {
    text += str(run, (*part)(run));
    run.check_text(text.size());
  }
  return make_text(run, std::move(text));
}

Value CompareOf::evaluate(Run& run) const {
  Value left = (*first)(run);
  for (const auto& [comparison, operand] : rest) {
    Value right = (*operand)(run);
    run.line = line;
    if (!compare(run, comparison, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value AndOr::evaluate(Run& run) const {
  Value value = (*left)(run);
  return value.truth(run) == conjunction ? (*right)(run) : value;
}

Value Not::evaluate(Run& run) const { return Value(!(*operand)(run).truth(run)); }

Value Conditional::evaluate(Run& run) const {
  if ((*condition)(run).truth(run)) return (*yes)(run);
  return no ? (*no)(run) : Value::undefined("the inline if-expression was false and has no else");
}

Flow Data::execute(Run& run) const {
  run.write(text);
  return Flow::normal;
}

Flow Print::execute(Run& run) const {
  const Value shown = (*value)(run);
  if (const Text* text = shown.text())
    run.write(text->bytes);
  else
    run.write(str(run, shown));
  return Flow::normal;
}

Flow If::execute(Run& run) const {
  for (const auto& [condition, body] : branches)
    if ((*condition)(run).truth(run)) return run_body(run, body);
  return run_body(run, otherwise);
}

Flow For::execute(Run& run) const {
  const Value all = (*over)(run);
  const ScopePointer outer = run.scope;
  run.line = line;
  run.bytes(256);
  auto state = std::make_shared<Loop>();
  state->levels = all.depth() + 1;
  if (state->levels > kMaxDepth) run.fail("values of a template must not nest deeper", "loop");
  Iteration iteration(run, all);
  if (condition) {
    state->source = [&]() -> std::optional<Value> {
      while (auto item = iteration.next()) {
        const ScopedValue<ScopePointer> inside(run.scope, run.enter(outer));
        target.assign(run, *item);
        if ((*condition)(run).truth(run)) return item;
      }
      return std::nullopt;
    };
  } else {
    state->source = [&] { return iteration.next(); };
    state->known_length = iteration.length();
  }
  // The source refers to this frame; a namespace may keep the loop object, which could then contain itself.
  const struct End {
    Loop& loop;
    ~End() {
      loop.source = nullptr;
      loop.last_values.reset();
      loop.after = loop.current = loop.before = std::nullopt;
    }
  } end{*state};
  const Value as_variable{std::shared_ptr<Object>(state)};
  bool whole = false;  // whether a body ran to its end, as in Jinja2
  while (state->advance()) {
    const ScopedValue<ScopePointer> inside(run.scope, run.enter(outer));
    run.scope->set(loop, as_variable);
    target.assign(run, *state->current);
    const Flow flow = run_body(run, body);
    if (flow == Flow::break_loop) break;
    whole |= flow == Flow::normal;
  }
  if (whole || otherwise.empty()) return Flow::normal;
  const ScopedValue<ScopePointer> inside(run.scope, run.enter(outer));
  return run_body(run, otherwise);
}

Flow Set::execute(Run& run) const {
  target.assign(run, (*value)(run));
  return Flow::normal;
}

namespace {

// Renders a body in its own scope and applies the filters to the result.
Flow filtered(Run& run, const Body& body, const std::vector<FilterCall>& filters, Value& value) {
  Flow flow = Flow::normal;
  std::string text;
  {
    const ScopedValue<ScopePointer> inside(run.scope, run.enter(run.scope));
    text = run.captured([&] { flow = run_body(run, body); });
  }
  if (flow != Flow::normal) return flow;
  value = make_text(run, std::move(text));
  for (const FilterCall& filter : filters) value = filter.apply(run, value);
  return flow;
}

}  // namespace

Flow SetBlock::execute(Run& run) const {
  Value value;
  const Flow flow = filtered(run, body, filters, value);
  if (flow == Flow::normal) target.assign(run, value);
  return flow;
}

Flow FilterBlock::execute(Run& run) const {
  Value value;
  const Flow flow = filtered(run, body, filters, value);
  if (flow == Flow::normal) run.write(str(run, value));
  return flow;
}

Flow With::execute(Run& run) const {
  const ScopePointer fresh = run.enter(run.scope);
  Values values;
  for (const auto& variable : variables) values.push_back((*variable.second)(run));
  const ScopedValue<ScopePointer> inside(run.scope, fresh);
  for (std::size_t i = 0; i < values.size(); ++i) variables[i].first.assign(run, values[i]);
  return run_body(run, body);
}

Flow DefineMacro::execute(Run& run) const {
  run.scope->set(variable, make_macro(run, macro));
  return Flow::normal;
}

Flow CallBlock::execute(Run& run) const {
  run.write(str(run, call->call_with(run, make_macro(run, caller))));
  return Flow::normal;
}

Flow Generation::execute(Run& run) const {
  if (run.marks_generation && run.captures())
    run.fail("generation blocks must stand outside of macros, set blocks and filter blocks", "generation");
  const std::size_t start = run.text().size();
  const ScopedValue<ScopePointer> inside(run.scope, run.enter(run.scope));
  run_body(run, body);
  if (run.marks_generation) run.generated.emplace_back(start, run.text().size());
  return Flow::normal;
}

}  // namespace meshloom::trainer::jinja
