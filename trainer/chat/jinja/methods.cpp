#include "trainer/chat/jinja/builtins.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/chat/jinja/run.h"

namespace meshloom::trainer::jinja {
namespace {

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 8> kListChanges{"append", "clear",  "extend",  "insert",
                                                       "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictChanges{"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 14> kOfNumbers{
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes",   "is_integer"};

using Call = Value (*)(Run& run, const Value& self, Arguments& arguments);

struct Method final : Object {
  std::string name;
  Value self;
  Call function = nullptr;
  TextMethod of_text = nullptr;
  std::string type() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  int depth() const override { return self.depth() + 1; }
  Value call(Run& run, Arguments& arguments) override {
    charge(run, self);
    return of_text ? of_text(run, *self.text(), arguments) : function(run, self, arguments);
  }
};

Value bound(Run& run, const std::string& name, const Value& self, Call function,
            TextMethod of_text = nullptr) {
  run.bytes(128);
  auto method = std::make_shared<Method>();
  method->name = name;
  method->self = self;
  method->function = function;
  method->of_text = of_text;
  return Value(std::move(method));
}

template <DictView::Part part>
Value view_of(Run& run, const Value& self, Arguments& arguments) {
  BoundArguments(run, "this method of a dict", arguments, {});
  run.bytes(64);
  return Value(std::make_shared<const DictView>(DictView{self.shared<const Dict>(), part}));
}

Value get(Run& run, const Value& self, Arguments& arguments) {
  const BoundArguments given(run, "get()", arguments, {"key", "default"}, 1);
  if (!given[0].key(run)) run.fail("a list or a dict cannot be the key of a dict", given[0].type());
  if (const Value* found = self.dict()->find(run, given[0])) return *found;
  return given.has(1) ? given[1] : Value(None{});
}

Value copy(Run& run, const Value& self, Arguments& arguments) {
  BoundArguments(run, "copy()", arguments, {});
  return self;  // it cannot change
}

Value index(Run& run, const Value& self, Arguments& arguments) {
  const BoundArguments given(run, "index()", arguments, {"value"}, 1);
  const Values& items = self.sequence()->items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].equals(run, given[0])) return Value(static_cast<std::int64_t>(i));
  run.fail("index() must be asked for a value that is in the list");
}

Value count(Run& run, const Value& self, Arguments& arguments) {
  const BoundArguments given(run, "count()", arguments, {"value"}, 1);
  std::int64_t found = 0;
  for (const Value& item : self.sequence()->items) found += item.equals(run, given[0]);
  return Value(found);
}

Value unsafe(const Value& object, const std::string& name) {
  return Value::undefined("a chat template must not change values: '" + name + "' of a " + object.type());
}

[[noreturn]] void unsupported(Run& run, const Value& object, const std::string& name) {
  run.fail("this attribute of the type " + object.type() + " is not supported", name);
}

std::optional<Value> of_sequence(Run& run, const Value& object, const std::string& name) {
  const Sequence& sequence = *object.sequence();
  if (name == "index") return bound(run, name, object, index);
  if (name == "count") return bound(run, name, object, count);
  if (sequence.group && name == "grouper") return sequence.items[0];
  if (sequence.group && name == "list") return sequence.items[1];
  if (sequence.tuple) return std::nullopt;
  if (name == "copy") return bound(run, name, object, copy);
  if (among(kListChanges, name)) return unsafe(object, name);
  return std::nullopt;
}

std::optional<Value> of_dict(Run& run, const Value& object, const std::string& name) {
  if (name == "items") return bound(run, name, object, view_of<DictView::items>);
  if (name == "keys") return bound(run, name, object, view_of<DictView::keys>);
  if (name == "values") return bound(run, name, object, view_of<DictView::values>);
  if (name == "get") return bound(run, name, object, get);
  if (name == "copy") return bound(run, name, object, copy);
  if (name == "fromkeys") unsupported(run, object, name);
  if (among(kDictChanges, name)) return unsafe(object, name);
  return std::nullopt;
}

}  // namespace

std::optional<Value> attribute_of(Run& run, const Value& object, const std::string& name) {
  if (name.starts_with("_")) return std::nullopt;
  if (object.text()) {
    bool known = false;
    if (const TextMethod method = text_method(name, known)) return bound(run, name, object, nullptr, method);
    if (known) unsupported(run, object, name);
    return std::nullopt;
  }
  if (object.sequence()) return of_sequence(run, object, name);
  if (object.dict()) return of_dict(run, object, name);
  if (const Range* range = object.range()) {
    if (name == "start") return Value(range->start);
    if (name == "stop") return Value(range->stop);
    if (name == "step") return Value(range->step);
    if (name == "index" || name == "count") unsupported(run, object, name);
    return std::nullopt;
  }
  if (object.object()) return object.object()->attribute(run, name);
  if (object.number() && among(kOfNumbers, name)) unsupported(run, object, name);
  if (object.view() && (name == "mapping" || name == "isdisjoint")) unsupported(run, object, name);
  if (object.iterator() && (name == "send" || name == "throw" || name == "close"))
    unsupported(run, object, name);
  return std::nullopt;
}

}  // namespace meshloom::trainer::jinja
