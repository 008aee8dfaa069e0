// Passes conversations to templates as their variables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/chat/chat_template.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/syntax.h"

namespace meshloom::trainer::jinja {

// Converts a JSON value of at most kMaxDepth levels. Throws Error, in which it is called `what`, for text
// that is not UTF-8.
Value value_of(Run& run, const nlohmann::ordered_json& json, const std::string& what);

// Sets the variables of a rendering that the template uses.
void set_variables(Run& run, const Tree& tree, const nlohmann::ordered_json& messages,
                   const ChatOptions& options);

}  // namespace meshloom::trainer::jinja
