// The global functions of templates: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

std::optional<Value> function_named(Run& run, const std::string& name);

}  // namespace meshloom::trainer::jinja
