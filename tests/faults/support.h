// Runs under the shim, which makes calls of the system and of drivers fail.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tests/trainer/run/binary.h"

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

}  // namespace meshloom::tests
