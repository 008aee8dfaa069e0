// Commands that messages suggest.
#pragma once

#include <string>

namespace meshloom::trainer {

// `text` as one word of a shell's command, quoted where it must be.
std::string shell_word(const std::string& text);

}  // namespace meshloom::trainer
