// Conversations as a template finds them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/chat/chat_template.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/syntax.h"

namespace meshloom::trainer::jinja {

// A JSON value of at most kMaxDepth levels. Throws Error naming `what` for text that is not UTF-8.
Value value_of(Run& run, const nlohmann::ordered_json& json, const std::string& what);

// The variables of a rendering, of those that the tree names.
void set_variables(Run& run, const Tree& tree, const nlohmann::ordered_json& messages,
                   const ChatOptions& options);

}  // namespace meshloom::trainer::jinja
