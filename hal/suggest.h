// Suggests the nearest known name in error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::hal {

// ", did you mean 'x'?" when a known name is near enough (an edit distance, ignoring case, of at most a third
// of the length or 1), else "".
std::string suggestion(std::string_view name, const std::vector<std::string>& known);
// "a, b, c"
std::string join(const std::vector<std::string>& names, std::string_view separator = ", ");

}  // namespace meshloom::hal
