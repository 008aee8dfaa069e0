// The syntax tree of a template. Nodes evaluate themselves; the tree owns them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

struct Node {
  virtual ~Node() = default;
  int line = 1;
};

struct Expression : Node {
  // Counts a step and the nesting, then calls evaluate().
  Value operator()(Run& run) const;
  virtual Value evaluate(Run& run) const = 0;
};

enum class Flow { normal, break_loop, continue_loop };

struct Statement : Node {
  Flow operator()(Run& run) const;
  virtual Flow execute(Run& run) const = 0;
};
using Body = std::vector<const Statement*>;
Flow run_body(Run& run, const Body& body);

struct CallArguments {
  std::vector<const Expression*> positional;
  std::vector<std::pair<std::string, const Expression*>> named;
  const Expression* rest = nullptr;        // *rest
  const Expression* rest_named = nullptr;  // **rest_named
  Arguments evaluate(Run& run) const;
};

struct FilterCall {
  Filter function = nullptr;  // null = there is none of this name
  std::string name;
  CallArguments arguments;
  int line = 1;
  Value apply(Run& run, const Value& input) const;
};

// The target of an assignment: a name, an attribute of a namespace, or several.
struct Target {
  enum Kind { name, attribute, tuple } kind = name;
  int variable = 0;
  std::string attribute_name;
  std::vector<Target> parts;
  void assign(Run& run, const Value& value) const;
};

// A macro, or the body of a call block.
struct MacroNode : Node {
  std::string name;  // empty for a call block
  struct Parameter {
    std::string name;
    int variable;
    const Expression* otherwise;  // null = no default
  };
  std::vector<Parameter> parameters;
  Body body;
  // Whether the body uses these names, and their numbers.
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  int caller = 0, kwargs = 0, varargs = 0;
};

// Expressions.
struct Literal final : Expression {
  Value value;
  Value evaluate(Run&) const override { return value; }
};
struct Name final : Expression {
  std::string name;
  int variable = 0;
  Value evaluate(Run& run) const override;
};
struct ListOf final : Expression {
  std::vector<const Expression*> items;
  bool tuple = false;
  Value evaluate(Run& run) const override;
};
struct DictOf final : Expression {
  std::vector<std::pair<const Expression*, const Expression*>> items;
  Value evaluate(Run& run) const override;
};
struct AttributeOf final : Expression {
  const Expression* object = nullptr;
  std::string name;
  Value evaluate(Run& run) const override;
};
struct ItemOf final : Expression {
  const Expression* object = nullptr;
  const Expression* index = nullptr;
  Value evaluate(Run& run) const override;
};
struct SliceOf final : Expression {
  const Expression* object = nullptr;
  const Expression* start = nullptr;  // null = open; so are stop and step
  const Expression* stop = nullptr;
  const Expression* step = nullptr;
  Value evaluate(Run& run) const override;
};
struct CallOf final : Expression {
  const Expression* callee = nullptr;
  CallArguments arguments;
  Value evaluate(Run& run) const override;
  // With the macro that a call block passes as `caller`.
  Value call_with(Run& run, const Value& caller) const;
};
struct FilterOf final : Expression {
  const Expression* input = nullptr;
  FilterCall filter;
  Value evaluate(Run& run) const override;
};
struct TestOf final : Expression {
  const Expression* input = nullptr;
  Test test = nullptr;  // null = there is none of this name
  std::string name;
  CallArguments arguments;
  Value evaluate(Run& run) const override;
};
struct UnaryOp final : Expression {
  const Expression* operand = nullptr;
  bool minus = false;
  Value evaluate(Run& run) const override;
};
struct BinaryOf final : Expression {
  Binary operation = Binary::add;
  const Expression* left = nullptr;
  const Expression* right = nullptr;
  Value evaluate(Run& run) const override;
};
struct Concatenation final : Expression {
  std::vector<const Expression*> parts;
  Value evaluate(Run& run) const override;
};
struct CompareOf final : Expression {
  const Expression* first = nullptr;
  std::vector<std::pair<Comparison, const Expression*>> rest;
  Value evaluate(Run& run) const override;
};
struct AndOr final : Expression {
  const Expression* left = nullptr;
  const Expression* right = nullptr;
  bool conjunction = false;  // and; else or
  Value evaluate(Run& run) const override;
};
struct Not final : Expression {
  const Expression* operand = nullptr;
  Value evaluate(Run& run) const override;
};
struct Conditional final : Expression {
  const Expression* condition = nullptr;
  const Expression* yes = nullptr;
  const Expression* no = nullptr;  // null = undefined
  Value evaluate(Run& run) const override;
};

// Statements.
struct Data final : Statement {
  std::string text;
  Flow execute(Run& run) const override;
};
struct Print final : Statement {
  const Expression* value = nullptr;
  Flow execute(Run& run) const override;
};
struct If final : Statement {
  std::vector<std::pair<const Expression*, Body>> branches;
  Body otherwise;
  Flow execute(Run& run) const override;
};
struct For final : Statement {
  Target target;
  const Expression* over = nullptr;
  const Expression* condition = nullptr;  // null = none
  Body body, otherwise;
  int loop = 0;  // the number of the name "loop"
  Flow execute(Run& run) const override;
};
struct Set final : Statement {
  Target target;
  const Expression* value = nullptr;
  Flow execute(Run& run) const override;
};
struct SetBlock final : Statement {
  Target target;
  std::vector<FilterCall> filters;
  Body body;
  Flow execute(Run& run) const override;
};
struct FilterBlock final : Statement {
  std::vector<FilterCall> filters;
  Body body;
  Flow execute(Run& run) const override;
};
struct With final : Statement {
  std::vector<std::pair<Target, const Expression*>> variables;
  Body body;
  Flow execute(Run& run) const override;
};
struct DefineMacro final : Statement {
  const MacroNode* macro = nullptr;
  int variable = 0;
  Flow execute(Run& run) const override;
};
struct CallBlock final : Statement {
  const CallOf* call = nullptr;
  const MacroNode* caller = nullptr;
  Flow execute(Run& run) const override;
};
struct LoopControl final : Statement {
  Flow flow = Flow::break_loop;
  Flow execute(Run&) const override { return flow; }
};
struct Generation final : Statement {
  Body body;
  Flow execute(Run& run) const override;
};

struct Tree {
  std::vector<std::unique_ptr<Node>> nodes;
  Body body;
  std::vector<std::string> names;  // by number
  bool has_generation = false;
};

}  // namespace meshloom::trainer::jinja
