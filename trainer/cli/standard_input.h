// Texts that commands read from a pipe.
#pragma once

#include <string>

namespace meshloom::trainer {

// Reads standard input to its end, without the newline that a shell adds. Throws Error, which calls it `option`.
std::string standard_input(const std::string& option);

}  // namespace meshloom::trainer
