#include "trainer/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

const char* sign(Binary operation) {
  switch (operation) {
    case Binary::add:
      return "+";
    case Binary::subtract:
      return "-";
    case Binary::multiply:
      return "*";
    case Binary::divide:
      return "/";
    case Binary::floor_divide:
      return "//";
    case Binary::modulo:
      return "%";
    case Binary::power:
      return "**";
  }
  return "?";
}

[[noreturn]] void refuse(Run& run, Binary operation, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right})
    if (value->is_undefined()) run.fail(value->why());
  run.fail("this operation is not defined for these types",
           left.type() + " " + sign(operation) + " " + right.type());
}

[[noreturn]] void refuse_zero(Run& run) { run.fail("a number cannot be divided by zero"); }
[[noreturn]] void refuse_large(Run& run) { run.fail("an integer of a chat template must fit into 64 bits"); }

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value whole_power(Run& run, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) refuse_zero(run);
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1 || exponent == 0) return Value(exponent == 0 ? std::int64_t{1} : base);
  if (base == -1) return Value(std::int64_t{exponent % 2 == 0 ? 1 : -1});
  std::int64_t result = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) refuse_large(run);
  return Value(result);
}

Value whole_binary(Run& run, Binary operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool large = false;
  switch (operation) {
    case Binary::add:
      large = __builtin_add_overflow(a, b, &result);
      break;
    case Binary::subtract:
      large = __builtin_sub_overflow(a, b, &result);
      break;
    case Binary::multiply:
      large = __builtin_mul_overflow(a, b, &result);
      break;
    case Binary::power:
      return whole_power(run, a, b);
    default:
      if (b == 0) refuse_zero(run);
      if (operation == Binary::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
      if (b == -1) {
        large = operation == Binary::floor_divide && __builtin_sub_overflow(std::int64_t{0}, a, &result);
      } else {
        const std::int64_t quotient = floor_quotient(a, b);
        result = operation == Binary::floor_divide ? quotient : a - quotient * b;
      }
  }
  if (large) refuse_large(run);
  return Value(result);
}

Value real_binary(Run& run, Binary operation, double a, double b) {
  switch (operation) {
    case Binary::add:
      return Value(a + b);
    case Binary::subtract:
      return Value(a - b);
    case Binary::multiply:
      return Value(a * b);
    case Binary::power: {
      if (a == 0 && b < 0) refuse_zero(run);
      const double power = std::pow(a, b);
      if (a < 0 && std::isfinite(b) && b != std::floor(b))
        run.fail("complex numbers are not supported", "**");
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) run.fail("a float is too large", "**");
      return Value(power);
    }
    default:
      break;
  }
  if (b == 0) refuse_zero(run);
  if (operation == Binary::divide) return Value(a / b);
  // As in Python's float_divmod, the remainder has the divisor's sign.
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (operation == Binary::modulo) return Value(remainder);
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return Value(floored);
}

Value repeated(Run& run, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (const Text* text = value.text()) {
    if (!text->bytes.empty() && times > kMaxText / text->bytes.size()) run.check_text(kMaxText + 1);
    std::string out;
    out.reserve(text->bytes.size() * times);
    for (std::size_t i = 0; i < times && !text->bytes.empty(); ++i) out += text->bytes;
    return make_text(run, std::move(out), text->markup);
  }
  const Sequence& sequence = *value.sequence();
  Values items;
  for (std::size_t i = 0; i < times && !sequence.items.empty(); ++i) {
    run.bytes(32 * sequence.items.size());
    run.step(sequence.items.size());
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return sequence.tuple ? make_tuple(run, std::move(items)) : make_list(run, std::move(items));
}

bool repeats(const Value& value) { return value.text() || value.sequence(); }

// The index for `value`, which counts from the end if negative; none when it is out of range.
std::optional<std::size_t> place(std::int64_t index, std::size_t length) {
  if (index < 0) index += static_cast<std::int64_t>(length);
  if (index < 0 || index >= static_cast<std::int64_t>(length)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value code_point(Run& run, const Text& text, std::size_t at) {
  if (text.code_points == text.bytes.size()) return make_text(run, text.bytes.substr(at, 1), text.markup);
  charge(run, text.bytes.size());
  const std::size_t start = byte_of(text.bytes, at);
  std::size_t end = start;
  next_code_point(text.bytes, end);
  return make_text(run, text.bytes.substr(start, end - start), text.markup);
}

// The item of Python's obj[index]; none when it raises TypeError or LookupError.
std::optional<Value> subscript(Run& run, const Value& object, const Value& index) {
  if (const Dict* dict = object.dict()) {
    const Value* found = dict->find(run, index);
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto whole = index.whole();
  if (!whole) return std::nullopt;
  if (const Text* text = object.text()) {
    const auto at = place(*whole, text->code_points);
    return at ? std::optional(code_point(run, *text, *at)) : std::nullopt;
  }
  if (const Sequence* sequence = object.sequence()) {
    const auto at = place(*whole, sequence->items.size());
    return at ? std::optional(sequence->items[*at]) : std::nullopt;
  }
  if (const Range* range = object.range()) {
    const auto at = place(*whole, range->length);
    return at ? std::optional(item_of(*range, *at)) : std::nullopt;
  }
  return std::nullopt;
}

Value missing(const Value& object, const std::string& name) {
  return Value::undefined("a value of the type " + object.type() + " has no attribute or item '" + name +
                          "'");
}

std::string shown_index(Run& run, const Value& index) {
  if (index.iterator() || index.object()) return index.type();
  const std::string text = str(run, index);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

}  // namespace

Value binary(Run& run, Binary operation, const Value& left, const Value& right) {
  if (const auto a = left.whole(), b = right.whole(); a && b) return whole_binary(run, operation, *a, *b);
  if (const auto a = left.number(), b = right.number(); a && b) return real_binary(run, operation, *a, *b);
  if (operation == Binary::add) {
    if (const Text* a = left.text(), *b = right.text(); a && b) {
      const bool markup = a->markup || b->markup;
      const auto part = [&](const Text& text) {
        return markup && !text.markup ? escaped(text.bytes) : text.bytes;
      };
      run.check_text(a->bytes.size() + b->bytes.size());
      charge(run, a->bytes.size() + b->bytes.size());
      return make_text(run, part(*a) + part(*b), markup);
    }
    if (const Sequence* a = left.sequence(), *b = right.sequence(); a && b && a->tuple == b->tuple) {
      run.bytes(32 * (a->items.size() + b->items.size()));
      Values items = a->items;
      items.insert(items.end(), b->items.begin(), b->items.end());
      return a->tuple ? make_tuple(run, std::move(items)) : make_list(run, std::move(items));
    }
  }
  if (operation == Binary::multiply) {
    if (const auto count = right.whole(); count && repeats(left)) return repeated(run, left, *count);
    if (const auto count = left.whole(); count && repeats(right)) return repeated(run, right, *count);
  }
  if (operation == Binary::modulo && left.text()) return percent_format(run, *left.text(), right);
  refuse(run, operation, left, right);
}

Value negative(Run& run, const Value& value) {
  if (const auto whole = value.whole()) return whole_binary(run, Binary::subtract, 0, *whole);
  if (const double* real = value.real()) return Value(-*real);
  if (value.is_undefined()) run.fail(value.why());
  run.fail("only numbers have a negative", value.type());
}

Value positive(Run& run, const Value& value) {
  if (const auto whole = value.whole()) return Value(*whole);
  if (value.real()) return value;
  if (value.is_undefined()) run.fail(value.why());
  run.fail("only numbers have a sign", value.type());
}

bool less(Run& run, const Value& left, const Value& right) {
  run.step();
  const Run::Nested nested(run);
  if (const auto a = left.whole(), b = right.whole(); a && b) return *a < *b;
  if (const auto a = left.number(), b = right.number(); a && b) return *a < *b;
  if (const Text* a = left.text(), *b = right.text(); a && b) {
    charge(run, std::min(a->bytes.size(), b->bytes.size()));
    return a->bytes < b->bytes;  // the order of UTF-8's bytes is that of code points
  }
  if (const Sequence* a = left.sequence(), *b = right.sequence(); a && b && a->tuple == b->tuple) {
    for (std::size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i)
      if (!a->items[i].equals(run, b->items[i])) return less(run, a->items[i], b->items[i]);
    return a->items.size() < b->items.size();
  }
  for (const Value* value : {&left, &right})
    if (value->is_undefined()) run.fail(value->why());
  run.fail("values of these types have no order", left.type() + " and " + right.type());
}

bool contains(Run& run, const Value& container, const Value& value) {
  if (const Text* text = container.text()) {
    const Text* part = value.text();
    if (!part) run.fail("only text can be in a text", value.type());
    charge(run, text->bytes.size() + part->bytes.size());
    return part->bytes.empty() ||
           memmem(text->bytes.data(), text->bytes.size(), part->bytes.data(), part->bytes.size());
  }
  if (const Dict* dict = container.dict()) {
    if (!value.key(run)) run.fail("a list or a dict cannot be the key of a dict", value.type());
    return dict->find(run, value) != nullptr;
  }
  Iteration iteration(run, container);
  while (const auto item = iteration.next())
    if (item->equals(run, value)) return true;
  return false;
}

bool compare(Run& run, Comparison comparison, const Value& left, const Value& right) {
  const auto ordered = [&](const Value& a, const Value& b, bool or_equal) {
    const auto x = a.number(), y = b.number();
    if (x && y && (std::isnan(*x) || std::isnan(*y))) return false;
    // Python has a separate a <= b; for values that have an order here it equals not (b < a).
    return or_equal ? !less(run, b, a) : less(run, a, b);
  };
  switch (comparison) {
    case Comparison::equal:
      return left.equals(run, right);
    case Comparison::unequal:
      return !left.equals(run, right);
    case Comparison::less:
      return ordered(left, right, false);
    case Comparison::less_equal:
      return ordered(left, right, true);
    case Comparison::greater:
      return ordered(right, left, false);
    case Comparison::greater_equal:
      return ordered(right, left, true);
    case Comparison::in:
      return contains(run, right, left);
    case Comparison::not_in:
      return !contains(run, right, left);
  }
  return false;
}

Value attribute(Run& run, const Value& object, const std::string& name) {
  if (object.is_undefined()) run.fail(object.why(), "." + name);
  if (auto found = attribute_of(run, object, name)) return *std::move(found);
  if (object.dict())
    if (auto found = subscript(run, object, make_text(run, name))) return *std::move(found);
  return missing(object, name);
}

Value item(Run& run, const Value& object, const Value& index) {
  if (object.is_undefined()) run.fail(object.why(), "[" + shown_index(run, index) + "]");
  if (auto found = subscript(run, object, index)) return *std::move(found);
  if (const Text* name = index.text())
    if (auto found = attribute_of(run, object, name->bytes)) return *std::move(found);
  return missing(object, shown_index(run, index));
}

Value slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) run.fail(object.why());
  const Text* text = object.text();
  const Sequence* sequence = object.sequence();
  const Range* range = object.range();
  if (!text && !sequence && !range) return missing(object, "slice");
  for (const Value* bound : {&start, &stop, &step})
    if (!bound->is_undefined() && !bound->is_none() && !bound->whole()) return missing(object, "slice");
  const auto length = static_cast<std::int64_t>(*length_of(run, object));
  const std::int64_t by = step.whole().value_or(1);
  if (by == 0) run.fail("a slice's step must not be zero");
  // As in Python's slice.indices.
  const auto bound = [&](const Value& value, std::int64_t open) {
    if (!value.whole()) return open;
    std::int64_t at = *value.whole();
    if (at < 0) at += length;
    return std::clamp<std::int64_t>(at, by < 0 ? -1 : 0, by < 0 ? length - 1 : length);
  };
  const std::int64_t first = bound(start, by < 0 ? length - 1 : 0), end = bound(stop, by < 0 ? -1 : length);
  std::vector<std::size_t> places;
  if (by == 1) {
    if (text) {
      charge(run, text->bytes.size());
      const std::size_t from = byte_of(text->bytes, static_cast<std::size_t>(first));
      const std::size_t code_points = static_cast<std::size_t>(std::max<std::int64_t>(end - first, 0));
      const std::size_t bytes = byte_of(std::string_view(text->bytes).substr(from), code_points);
      return make_text(run, text->bytes.substr(from, bytes), text->markup);
    }
  }
  for (std::int64_t at = first; by > 0 ? at < end : at > end;) {
    places.push_back(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  run.step(places.size());
  if (text) {
    charge(run, text->bytes.size());
    std::vector<std::size_t> starts;  // the first byte of each character
    for (std::size_t at = 0; at < text->bytes.size();) {
      starts.push_back(at);
      next_code_point(text->bytes, at);
    }
    run.bytes(8 * starts.size());
    std::string out;
    for (const std::size_t at : places) {
      std::size_t behind = starts[at];
      append_code_point(out, next_code_point(text->bytes, behind));
    }
    return make_text(run, std::move(out), text->markup);
  }
  if (range) {
    const std::int64_t from = range->start + first * range->step, to = range->start + end * range->step;
    std::int64_t each = 0;
    if (__builtin_mul_overflow(range->step, by, &each) || std::abs(each) > kMaxRangeBound) refuse_large(run);
    return Value(std::make_shared<const Range>(Range{from, to, each, places.size()}));
  }
  Values items;
  for (const std::size_t at : places) items.push_back(sequence->items[at]);
  return sequence->tuple ? make_tuple(run, std::move(items)) : make_list(run, std::move(items));
}

Value call(Run& run, const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) run.fail(callee.why(), "a call of it");
  Object* object = callee.object();
  if (!object || !object->callable()) run.fail("only functions and macros can be called", callee.type());
  const Run::Nested nested(run);
  for (const Value& value : arguments.positional) charge(run, value);
  return object->call(run, arguments);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

}  // namespace meshloom::trainer::jinja
