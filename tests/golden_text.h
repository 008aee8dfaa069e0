// Texts that are kept in the tree and compared line by line. MESHLOOM_UPDATE_GOLDEN=1 writes them anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace meshloom::tests {

// `name` is a file's path below tests/, such as "trainer/compose/golden/train.txt".
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(MESHLOOM_SOURCE_DIR) + "/tests/" + name;
  if (std::getenv("MESHLOOM_UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ostringstream kept;
  kept << std::ifstream(path).rdbuf();
  std::istringstream want(kept.str()), got(text);
  std::string want_line, got_line;
  for (int line = 1;; ++line) {
    const bool more_wanted = static_cast<bool>(std::getline(want, want_line));
    const bool more_got = static_cast<bool>(std::getline(got, got_line));
    if (!more_wanted && !more_got) return;
    if (more_wanted && more_got && want_line == got_line) continue;
    FAIL() << path << ":" << line << " differs; MESHLOOM_UPDATE_GOLDEN=1 writes it anew\n  kept: "
           << (more_wanted ? want_line : "(end)") << "\n  now:  " << (more_got ? got_line : "(end)");
  }
}

}  // namespace meshloom::tests
