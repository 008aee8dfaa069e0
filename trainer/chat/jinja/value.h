// The values that a template computes with, as Python has them. All but the attributes of a namespace and the
// position of an iterator are immutable, so copies share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace meshloom::trainer::jinja {

class Run;
class Value;
using Values = std::vector<Value>;

struct Undefined {
  std::shared_ptr<const std::string> why;  // what a use of it is refused with
};

struct None {};

struct Text;
struct Sequence;
struct Dict;
struct DictView;
struct Range;
struct Iterator;
struct Object;

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                               std::shared_ptr<const DictView>, std::shared_ptr<const Range>,
                               std::shared_ptr<Iterator>, std::shared_ptr<Object>>;

  Value() = default;
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char*) = delete;
  template <typename T>
  Value(std::shared_ptr<T> data) : data_(std::move(data)) {}
  static Value undefined(std::string why) {
    return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
  }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  // Null where the value is of another kind.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const { return pointer<const Text>(); }
  const Sequence* sequence() const { return pointer<const Sequence>(); }
  const Dict* dict() const { return pointer<const Dict>(); }
  const DictView* view() const { return pointer<const DictView>(); }
  const Range* range() const { return pointer<const Range>(); }
  Iterator* iterator() const { return pointer<Iterator>(); }
  Object* object() const { return pointer<Object>(); }
  template <typename T>
  std::shared_ptr<T> shared() const {
    return std::get<std::shared_ptr<T>>(data_);
  }
  // A boolean or an integer, as in Python.
  std::optional<std::int64_t> whole() const;
  std::optional<double> number() const;

  // The message of an undefined value.
  const std::string& why() const;
  std::string type() const;  // "str", "NoneType", ...
  int depth() const;
  bool truth(Run& run) const;
  // What `==` asks.
  bool equals(Run& run, const Value& other) const;
  // What a dict finds the value by; none where it is no key.
  std::optional<std::string> key(Run& run) const;

 private:
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  template <typename T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held ? held->get() : nullptr;
  }
  Variant data_;
};

struct Text {
  std::string bytes;
  std::size_t code_points;  // code points
  bool markup;              // marked safe (`safe`, `escape`): what is added to it is escaped
};

struct Sequence {
  Values items;
  bool tuple;
  bool group;  // of the filter groupby: its two items have the names grouper and list
  int depth;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  std::unordered_map<std::string, std::size_t> index;
  int depth = 1;
  const Value* find(Run& run, const Value& key) const;
  // False where the key is no key (a list, a dict).
  bool set(Run& run, const Value& key, Value value);
};

// What dict.items(), .keys() and .values() return.
struct DictView {
  enum Part { items, keys, values };
  std::shared_ptr<const Dict> dict;
  Part part;
};

struct Range {
  std::int64_t start, stop, step;
  std::size_t length;
};

// A Python generator: every item comes once.
struct Iterator {
  std::function<std::optional<Value>()> next;
  int depth;
};

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Functions, macros, namespaces, loops.
struct Object : std::enable_shared_from_this<Object> {
  virtual ~Object() = default;
  virtual std::string type() const = 0;  // its name in Python
  // None where it has no such attribute.
  virtual std::optional<Value> attribute(Run&, const std::string&) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Run& run, Arguments& arguments);
  virtual std::string repr(Run& run);
  virtual std::optional<std::size_t> length(Run&) { return std::nullopt; }
  // Levels of values below this one.
  virtual int depth() const { return 0; }
};

// Looking at so many bytes is charged to the run's bounds.
void charge(Run& run, std::size_t bytes);
void charge(Run& run, const Value& value);
// Each is charged.
Value make_text(Run& run, std::string bytes, bool markup = false);
Value make_list(Run& run, Values items);
Value make_tuple(Run& run, Values items, bool group = false);
Value make_dict(Run& run, const std::vector<std::pair<Value, Value>>& items);
Value make_iterator(Run& run, std::function<std::optional<Value>()> next, int depth);

Value item_of(Run& run, const DictView& view, std::size_t at);
Value item_of(const Range& range, std::size_t at);

// Goes over what Python would iterate; throws Error where it would not.
class Iteration {
 public:
  Iteration(Run& run, const Value& over);
  std::optional<Value> next();
  // Items in all, where the value knows.
  std::optional<std::size_t> length() const { return length_; }

 private:
  Run& run_;
  Value over_;
  std::size_t at_ = 0;
  std::optional<std::size_t> length_;
};
bool iterable(const Value& value);
Values all_of(Run& run, const Value& over);
// Items, characters; none where Python's len() refuses.
std::optional<std::size_t> length_of(Run& run, const Value& value);

// Python's str() and repr().
std::string str(Run& run, const Value& value);
std::string repr(Run& run, const Value& value);
std::string real_text(double value);

}  // namespace meshloom::trainer::jinja
