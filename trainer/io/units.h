// Numbers with units, for people.
#pragma once

#include <string>

namespace meshloom::trainer {

// "12.3 MiB"
std::string bytes_text(double bytes);
// "1.23 T", "45.6 G": three digits.
std::string count_text(double count);

}  // namespace meshloom::trainer
