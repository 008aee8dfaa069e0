// Runs under the shim, which makes calls of the system and of drivers fail.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/train/binary.h"

namespace meshloom::tests {

// Words in front of the program: these faults (shim/faults.h), and a log of what was synced unless empty.
inline std::string with_faults(const std::string& faults, const std::string& log = {}) {
  return "LD_PRELOAD=" MESHLOOM_FAULTS_SHIM " MESHLOOM_FAULTS='" + faults + "'" +
         (log.empty() ? "" : " MESHLOOM_FAULTS_LOG=" + log);
}

inline std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// DIR/step-00000012
inline std::string step_path(const std::string& run, std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "/step-%08lld", static_cast<long long>(step));
  return run + name;
}

}  // namespace meshloom::tests
