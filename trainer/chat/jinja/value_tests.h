// Jinja's tests: VALUE is NAME(ARGUMENTS).
#pragma once

#include <string>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

using Test = bool (*)(Run& run, const Value& input, Arguments& arguments);

// Null when there is no such test.
Test test_named(const std::string& name);

}  // namespace meshloom::trainer::jinja
