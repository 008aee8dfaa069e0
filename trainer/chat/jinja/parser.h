// From a template's text to its tree.
#pragma once

#include <string>
#include <string_view>

#include "trainer/chat/jinja/syntax.h"

namespace meshloom::trainer::jinja {

// Throws Error (where = `where` and the line) for what is no Jinja template, and for statements, filters and
// tests that are not built, by name.
Tree parse(std::string_view source, const std::string& where);

}  // namespace meshloom::trainer::jinja
