// Parses the text of a template into its syntax tree.
#pragma once

#include <string>
#include <string_view>

#include "trainer/chat/jinja/syntax.h"

namespace meshloom::trainer::jinja {

// Throws Error (where = `where` and the line) for an invalid template, and for statements, filters and tests
// that are not supported, which the message names.
Tree parse(std::string_view source, const std::string& where);

}  // namespace meshloom::trainer::jinja
