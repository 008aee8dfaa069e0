// What is built into templates: global functions, filters, tests, and the methods of Python's types.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

// The global functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now
// (functions.cpp).
std::optional<Value> function_named(Run& run, const std::string& name);

// Filters: VALUE | NAME(ARGUMENTS).
using Filter = Value (*)(Run& run, const Value& input, Arguments& arguments);
// Null when there is no such filter; `known` says whether Jinja2 has it and it is not supported here.
Filter filter_named(const std::string& name, bool& known);
// The filters of text and numbers (text_filters.cpp), and those of sequences and dicts
// (sequence_filters.cpp).
Filter text_filter(const std::string& name);
Filter sequence_filter(const std::string& name);
// json.dumps with the options that transformers allows.
Value tojson(Run& run, const Value& input, Arguments& arguments);

// Tests: VALUE is NAME(ARGUMENTS).
using Test = bool (*)(Run& run, const Value& input, Arguments& arguments);
// Null when there is no such test.
Test test_named(const std::string& name);

// The attributes and methods of text, lists, dicts and ranges (methods.cpp). None when the type has no such
// attribute. Methods that would change a value are undefined, as in the sandbox; attributes of Python that
// are not supported throw Error.
std::optional<Value> attribute_of(Run& run, const Value& object, const std::string& name);
// The method of a text (text_methods.cpp), or null; `known` says whether Python has it.
using TextMethod = Value (*)(Run& run, const Text& self, Arguments& arguments);
TextMethod text_method(const std::string& name, bool& known);
// `text` with the first `max_count` occurrences of `old` replaced by `fresh`.
std::string replaced(Run& run, std::string_view text, std::string_view old, std::string_view fresh,
                     std::size_t max_count);
// str.format with plain fields: {}, {0}, {name}, each with .attributes, [items] and !s or !r.
Value brace_format(Run& run, const Text& self, Arguments& arguments);

}  // namespace meshloom::trainer::jinja
