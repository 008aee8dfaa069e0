// The values of templates, as in Python. All but the attributes of a namespace and the position of an
// iterator are immutable, so copies share their data.
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
  std::shared_ptr<const std::string> why;  // the message when it is used
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
  // Null when the value is of another kind.
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
  // The operator `==`.
  bool equals(Run& run, const Value& other) const;
  // The key of the value in a dict; none when it cannot be a key.
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
  bool markup;              // marked safe (`safe`, `escape`): text that is added to it is escaped
};

struct Sequence {
  Values items;
  bool tuple;
  bool group;  // made by the filter groupby: its two items are also named grouper and list
  int depth;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  std::unordered_map<std::string, std::size_t> index;
  int depth = 1;
  const Value* find(Run& run, const Value& key) const;
  // False when the key cannot be a key (a list, a dict).
  bool set(Run& run, const Value& key, Value value);
};

// The result of dict.items(), .keys() and .values().
struct DictView {
  enum Part { items, keys, values };
  std::shared_ptr<const Dict> dict;
  Part part;
};

struct Range {
  std::int64_t start, stop, step;
  std::size_t length;
};

// A Python generator, which gives every item once.
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
  // None when it has no such attribute.
  virtual std::optional<Value> attribute(Run&, const std::string&) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Run& run, Arguments& arguments);
  virtual std::string repr(Run& run);
  virtual std::optional<std::size_t> length(Run&) { return std::nullopt; }
  // The number of levels of values below this one.
  virtual int depth() const { return 0; }
};

// Count the visit of so many bytes, or of a value, towards the bounds of the rendering.
void charge(Run& run, std::size_t bytes);
void charge(Run& run, const Value& value);
// Create values, which are counted towards the bounds.
Value make_text(Run& run, std::string bytes, bool markup = false);
Value make_list(Run& run, Values items);
Value make_tuple(Run& run, Values items, bool group = false);
Value make_dict(Run& run, const std::vector<std::pair<Value, Value>>& items);
Value make_iterator(Run& run, std::function<std::optional<Value>()> next, int depth);

Value item_of(Run& run, const DictView& view, std::size_t at);
Value item_of(const Range& range, std::size_t at);

// Iterates over a value as Python does; throws Error for values that Python cannot iterate.
class Iteration {
 public:
  Iteration(Run& run, const Value& over);
  std::optional<Value> next();
  // The number of items, if the value knows it.
  std::optional<std::size_t> length() const { return length_; }

 private:
  Run& run_;
  Value over_;
  std::size_t at_ = 0;
  std::optional<std::size_t> length_;
};
bool iterable(const Value& value);
Values all_of(Run& run, const Value& over);
// Python's len(); none for values without a length.
std::optional<std::size_t> length_of(Run& run, const Value& value);

// Python's str() and repr().
std::string str(Run& run, const Value& value);
std::string repr(Run& run, const Value& value);
std::string real_text(double value);

}  // namespace meshloom::trainer::jinja
