// Settings that the environment gives, and what is said of those that cannot be.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "hal/environment.h"
#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

TEST(Environment, TmpdirMustBeADirectory) {
  const char* before = std::getenv("TMPDIR");
  const std::optional<std::string> kept = before ? std::optional<std::string>(before) : std::nullopt;
  ::setenv("TMPDIR", "/", 1);
  EXPECT_EQ(hal::temporary_directory(), "/");
  ::setenv("TMPDIR", "/no such directory", 1);
  EXPECT_EQ(message_of([] { hal::temporary_directory(); }),
            "TMPDIR: must name a directory, for temporary files; found '/no such directory'");
  kept ? ::setenv("TMPDIR", kept->c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
}  // namespace meshloom::tests
