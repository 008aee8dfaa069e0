// Text for people on standard error.
#pragma once

#include <string_view>

namespace meshloom::hal {

// Prints the text as it is. What standard error does not take is dropped: a full disk below a log, or a reader that went
// away, is no reason to end a run.
void print_error(std::string_view text);

}  // namespace meshloom::hal
