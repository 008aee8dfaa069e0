// What Python's own types have behind a dot: the methods of text, lists, dicts and ranges.
#pragma once

#include <optional>
#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

// None where the type has no such attribute. What would change a value is undefined, as in the sandbox; what
// Python has and this does not build throws Error.
std::optional<Value> attribute_of(Run& run, const Value& object, const std::string& name);

// The method of a text, or null. `known`: whether Python has it.
using TextMethod = Value (*)(Run& run, const Text& self, Arguments& arguments);
TextMethod text_method(const std::string& name, bool& known);

// `text` with the first `most` of `old` replaced.
std::string replaced(Run& run, std::string_view text, std::string_view old, std::string_view fresh,
                     std::size_t most);

// str.format with plain fields: {}, {0}, {name}, each with .attributes, [items] and !s or !r.
Value brace_format(Run& run, const Text& self, Arguments& arguments);

}  // namespace meshloom::trainer::jinja
