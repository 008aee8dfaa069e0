// Python's operators, subscripts and attributes.
#pragma once

#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

enum class Binary { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };

// All throw Error when Python raises, and when an integer does not fit into 64 bits.
Value binary(Run& run, Binary operation, const Value& left, const Value& right);
Value negative(Run& run, const Value& value);
Value positive(Run& run, const Value& value);
bool compare(Run& run, Comparison comparison, const Value& left, const Value& right);
bool less(Run& run, const Value& left, const Value& right);
bool contains(Run& run, const Value& container, const Value& value);

// `object.name`: an attribute, else an item; undefined when there is neither.
Value attribute(Run& run, const Value& object, const std::string& name);
// `object[index]`: an item, else (text) an attribute.
Value item(Run& run, const Value& object, const Value& index);
// `object[start:stop:step]`; undefined bounds are open.
Value slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step);
Value call(Run& run, const Value& callee, Arguments& arguments);

// Escapes text for markup.
std::string escaped(std::string_view text);
// `pattern % arguments`
Value percent_format(Run& run, const Text& pattern, const Value& arguments);

}  // namespace meshloom::trainer::jinja
