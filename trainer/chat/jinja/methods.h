// The attributes and methods of Python's built-in types: text, lists, dicts and ranges.
#pragma once

#include <optional>
#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

// None when the type has no such attribute. Methods that would change a value are undefined, as in the sandbox; attributes of
// Python that are not supported throw Error.
std::optional<Value> attribute_of(Run& run, const Value& object, const std::string& name);

// The method of a text, or null; `known` says whether Python has it.
using TextMethod = Value (*)(Run& run, const Text& self, Arguments& arguments);
TextMethod text_method(const std::string& name, bool& known);

// `text` with the first `max_count` occurrences of `old` replaced by `fresh`.
std::string replaced(Run& run, std::string_view text, std::string_view old, std::string_view fresh,
                     std::size_t max_count);

// str.format with plain fields: {}, {0}, {name}, each with .attributes, [items] and !s or !r.
Value brace_format(Run& run, const Text& self, Arguments& arguments);

}  // namespace meshloom::trainer::jinja
