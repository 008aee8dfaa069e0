#include "trainer/chat/jinja/value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

// The bytes that a value counts besides its contents.
constexpr std::size_t kValueBytes = 64;

int deepest(const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

int charge_items(Run& run, std::size_t count, int depth) {
  run.step(count);
  run.bytes(kValueBytes + 32 * count);
  if (depth >= kMaxDepth)
    run.fail("lists and dicts of a template must not nest deeper than " + std::to_string(kMaxDepth) +
             " levels");
  return depth + 1;
}

Value make_sequence(Run& run, Values items, bool tuple, bool group) {
  const int depth = charge_items(run, items.size(), deepest(items));
  return Value(std::make_shared<const Sequence>(Sequence{std::move(items), tuple, group, depth}));
}

bool same_items(Run& run, std::size_t count, const auto& left, const auto& right) {
  for (std::size_t i = 0; i < count; ++i)
    if (!left(i).equals(run, right(i))) return false;
  return true;
}

std::string joined(Run& run, const char* open, const char* close, std::size_t count, const auto& text_at) {
  std::string out = open;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    out += text_at(i);
    run.check_text(out.size());
  }
  return out + close;
}

std::string dict_text(Run& run, const Dict& dict) {
  return joined(run, "{", "}", dict.items.size(), [&](std::size_t i) {
    return repr(run, dict.items[i].first) + ": " + repr(run, dict.items[i].second);
  });
}

}  // namespace

Value Object::call(Run& run, Arguments&) { run.fail("only functions and macros can be called", type()); }
std::string Object::repr(Run& run) { run.fail("a " + type() + " has no text that is the same in every run"); }

const Value* Dict::find(Run& run, const Value& wanted) const {
  const auto key = wanted.key(run);
  if (!key) return nullptr;
  const auto found = index.find(*key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

bool Dict::set(Run& run, const Value& name, Value value) {
  const auto key = name.key(run);
  if (!key) return false;
  depth = std::max({depth, name.depth() + 1, value.depth() + 1});
  const auto [place, fresh] = index.emplace(*key, items.size());
  if (fresh)
    items.emplace_back(name, std::move(value));
  else
    items[place->second].second = std::move(value);
  return true;
}

std::optional<std::int64_t> Value::whole() const {
  if (const bool* value = boolean()) return *value ? 1 : 0;
  if (const std::int64_t* value = integer()) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = real()) return *value;
  if (const auto value = whole()) return static_cast<double>(*value);
  return std::nullopt;
}

const std::string& Value::why() const {
  static const std::string kNothing = "a variable is undefined";
  const auto& why = std::get<Undefined>(data_).why;
  return why ? *why : kNothing;
}

std::string Value::type() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (boolean()) return "bool";
  if (integer()) return "int";
  if (real()) return "float";
  if (const Text* value = text()) return value->markup ? "Markup" : "str";
  if (const Sequence* value = sequence()) return value->tuple ? "tuple" : "list";
  if (dict()) return "dict";
  if (const DictView* value = view())
    return value->part == DictView::items  ? "dict_items"
           : value->part == DictView::keys ? "dict_keys"
                                           : "dict_values";
  if (range()) return "range";
  if (iterator()) return "generator";
  return object()->type();
}

int Value::depth() const {
  if (const Sequence* value = sequence()) return value->depth;
  if (const Dict* value = dict()) return value->depth;
  if (const DictView* value = view()) return value->dict->depth;
  if (const Iterator* value = iterator()) return value->depth;
  if (const Object* value = object()) return value->depth();
  return 0;
}

bool Value::truth(Run& run) const {
  if (is_undefined() || is_none()) return false;
  if (const auto value = number()) return *value != 0;
  const auto length = length_of(run, *this);
  return !length || *length > 0;
}

bool Value::equals(Run& run, const Value& other) const {
  run.step();
  const Run::Nested nested(run);
  if (is_undefined() || other.is_undefined()) return is_undefined() && other.is_undefined();
  if (is_none() || other.is_none()) return is_none() && other.is_none();
  if (const auto a = whole(), b = other.whole(); a && b) return *a == *b;
  if (const auto a = number(), b = other.number(); a || b) return a && b && *a == *b;
  if (const Text* a = text(), *b = other.text(); a || b) {
    if (!a || !b || a->bytes.size() != b->bytes.size()) return false;
    charge(run, a->bytes.size());
    return a->bytes == b->bytes;
  }
  if (const Sequence* a = sequence(), *b = other.sequence(); a && b)
    return a->tuple == b->tuple && a->items.size() == b->items.size() &&
           same_items(
               run, a->items.size(), [&](std::size_t i) { return a->items[i]; },
               [&](std::size_t i) { return b->items[i]; });
  if (const Range* a = range(), *b = other.range(); a && b)
    return a->length == b->length && same_items(
                                         run, a->length, [&](std::size_t i) { return item_of(*a, i); },
                                         [&](std::size_t i) { return item_of(*b, i); });
  if (const Dict* a = dict(), *b = other.dict(); a && b) {
    if (a->items.size() != b->items.size()) return false;
    for (const auto& [name, value] : a->items) {
      const Value* found = b->find(run, name);
      if (!found || !value.equals(run, *found)) return false;
    }
    return true;
  }
  if (const DictView* a = view(), *b = other.view(); a && b)
    run.fail("comparing views of dicts is not supported; compare lists", type() + " == " + other.type());
  if (iterator() && other.iterator()) return iterator() == other.iterator();
  return object() && object() == other.object();
}

std::optional<std::string> Value::key(Run& run) const {
  run.step();
  charge(run, *this);
  if (is_undefined()) return "u";
  if (is_none()) return "N";
  if (const auto value = whole()) return "n" + std::to_string(*value);
  if (const double* value = real()) {
    if (std::abs(*value) < 9e18 && *value == std::floor(*value))
      return "n" + std::to_string(static_cast<std::int64_t>(*value));
    return "f" + std::to_string(std::bit_cast<std::uint64_t>(*value));
  }
  if (const Text* value = text()) return "s" + value->bytes;
  const auto address = [](const void* at) {
    return "o" + std::to_string(reinterpret_cast<std::uintptr_t>(at));
  };
  if (iterator()) return address(iterator());
  if (object()) return address(object());
  const Sequence* value = sequence();
  if (!value || !value->tuple) return std::nullopt;
  std::string all = "t";
  for (const Value& item : value->items) {
    const auto part = item.key(run);
    if (!part) return std::nullopt;
    all += std::to_string(part->size()) + ":" + *part;
    charge(run, part->size());
    run.check_text(all.size());
  }
  return all;
}

void charge(Run& run, std::size_t bytes) { run.step(bytes / 16); }

void charge(Run& run, const Value& value) {
  if (const Text* text = value.text()) charge(run, text->bytes.size());
}

Value make_text(Run& run, std::string bytes, bool markup) {
  run.check_text(bytes.size());
  run.step(bytes.size() / 64);
  run.bytes(kValueBytes + bytes.size());
  const std::size_t code_points = count_code_points(bytes);
  return Value(std::make_shared<const Text>(Text{std::move(bytes), code_points, markup}));
}

Value make_list(Run& run, Values items) { return make_sequence(run, std::move(items), false, false); }
Value make_tuple(Run& run, Values items, bool group) {
  return make_sequence(run, std::move(items), true, group);
}

Value make_dict(Run& run, const std::vector<std::pair<Value, Value>>& items) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : items) {
    if (const Text* text = name.text()) run.bytes(2 * text->bytes.size());
    if (!dict->set(run, name, value)) run.fail("a list or a dict cannot be the key of a dict", name.type());
  }
  charge_items(run, 4 * items.size(), dict->depth - 1);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value make_iterator(Run& run, std::function<std::optional<Value>()> next, int depth) {
  return Value(std::make_shared<Iterator>(Iterator{std::move(next), charge_items(run, 0, depth)}));
}

Value item_of(Run& run, const DictView& view, std::size_t at) {
  const auto& [name, value] = view.dict->items[at];
  if (view.part == DictView::keys) return name;
  if (view.part == DictView::values) return value;
  return make_tuple(run, {name, value});
}

Value item_of(const Range& range, std::size_t at) {
  return Value(range.start + static_cast<std::int64_t>(at) * range.step);
}

bool iterable(const Value& value) {
  return value.is_undefined() || value.text() || value.sequence() || value.dict() || value.view() ||
         value.range() || value.iterator() || (value.object() && value.type() == "LoopContext");
}

Iteration::Iteration(Run& run, const Value& over) : run_(run), over_(over) {
  if (!iterable(over)) run.fail("only lists, dicts, texts and other sequences can be gone over", over.type());
  if (over.object()) run.fail("going over the variable loop is not supported");
  if (!over.iterator()) length_ = length_of(run, over);
}

std::optional<Value> Iteration::next() {
  run_.step();
  if (Iterator* iterator = over_.iterator()) {
    const Run::Nested nested(run_);
    return iterator->next();
  }
  if (const Text* text = over_.text()) {
    if (at_ >= text->bytes.size()) return std::nullopt;
    const std::size_t start = at_;
    next_code_point(text->bytes, at_);
    return make_text(run_, text->bytes.substr(start, at_ - start), text->markup);
  }
  if (at_ >= length_.value_or(0)) return std::nullopt;
  const std::size_t at = at_++;
  if (const Sequence* sequence = over_.sequence()) return sequence->items[at];
  if (const Dict* dict = over_.dict()) return dict->items[at].first;
  if (const DictView* view = over_.view()) return item_of(run_, *view, at);
  if (const Range* range = over_.range()) return item_of(*range, at);
  return std::nullopt;
}

Values all_of(Run& run, const Value& over) {
  if (const Sequence* sequence = over.sequence()) return sequence->items;
  Values items;
  Iteration iteration(run, over);
  while (auto item = iteration.next()) {
    run.bytes(32);
    items.push_back(*std::move(item));
  }
  return items;
}

std::optional<std::size_t> length_of(Run& run, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) return text->code_points;
  if (const Sequence* sequence = value.sequence()) return sequence->items.size();
  if (const Dict* dict = value.dict()) return dict->items.size();
  if (const DictView* view = value.view()) return view->dict->items.size();
  if (const Range* range = value.range()) return range->length;
  if (Object* object = value.object()) return object->length(run);
  return std::nullopt;
}

std::string str(Run& run, const Value& value) {
  if (value.is_undefined()) return "";
  if (const Text* text = value.text()) return text->bytes;
  return repr(run, value);
}

std::string repr(Run& run, const Value& value) {
  run.step();
  const Run::Nested nested(run);
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const bool* flag = value.boolean()) return *flag ? "True" : "False";
  if (const auto* number = value.integer()) return std::to_string(*number);
  if (const double* number = value.real()) return real_text(*number);
  if (const Text* text = value.text()) {
    charge(run, text->bytes.size());
    const std::string quoted = repr(text->bytes);
    return text->markup ? "Markup(" + quoted + ")" : quoted;
  }
  if (const Sequence* sequence = value.sequence()) {
    const char* close = !sequence->tuple ? "]" : sequence->items.size() == 1 ? ",)" : ")";
    return joined(run, sequence->tuple ? "(" : "[", close, sequence->items.size(),
                  [&](std::size_t i) { return repr(run, sequence->items[i]); });
  }
  if (const Dict* dict = value.dict()) return dict_text(run, *dict);
  if (const DictView* view = value.view())
    return value.type() + joined(run, "([", "])", view->dict->items.size(),
                                 [&](std::size_t i) { return repr(run, item_of(run, *view, i)); });
  if (const Range* range = value.range()) {
    std::string text = "range(" + std::to_string(range->start) + ", " + std::to_string(range->stop);
    if (range->step != 1) text += ", " + std::to_string(range->step);
    return text + ")";
  }
  if (value.iterator())
    run.fail(
        "a generator (what map, select and others return) has no text; make it a list first, as by `| list`");
  return value.object()->repr(run);
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const bool negative = text[0] == '-';
  const std::size_t e = text.find('e');
  std::string digits;
  for (char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace meshloom::trainer::jinja
