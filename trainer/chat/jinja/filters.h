// Jinja's filters: VALUE | NAME(ARGUMENTS).
#pragma once

#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

using Filter = Value (*)(Run& run, const Value& input, Arguments& arguments);

// Null when there is no such filter; `known` says whether Jinja2 has it and it is not supported here.
Filter filter_named(const std::string& name, bool& known);

// The filters of text and numbers, and those of sequences and dicts (text_filters.cpp, sequence_filters.cpp).
Filter text_filter(const std::string& name);
Filter sequence_filter(const std::string& name);

// json.dumps with the options that transformers allows.
Value tojson(Run& run, const Value& input, Arguments& arguments);

}  // namespace meshloom::trainer::jinja
