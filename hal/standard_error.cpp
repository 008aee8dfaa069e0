#include "hal/standard_error.h"

#include <cstdio>

namespace meshloom::hal {

void print_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace meshloom::hal
