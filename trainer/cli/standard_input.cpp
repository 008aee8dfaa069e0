#include "trainer/cli/standard_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "hal/error.h"

namespace meshloom::trainer {

std::string standard_input(const std::string& option) {
  std::string text;
  char block[1 << 14];
  while (const std::size_t got = std::fread(block, 1, sizeof block, stdin)) text.append(block, got);
  if (std::ferror(stdin)) throw hal::Error(option, "standard input must be readable", std::strerror(errno));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace meshloom::trainer
