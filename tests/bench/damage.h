// Damages JSON as a broken disk or editor would, for tests of what reads it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/core/rng.h"

namespace meshloom::tests {

inline int damage_rounds() {
  const char* wanted = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  return wanted ? std::max(100, std::atoi(wanted)) : 2000;
}

inline std::string damaged(std::string text, kernels::Rng& rng) {
  constexpr std::string_view kBytes = "{}[]\",:0123456789.eE+-tfn \n\\u\xff";
  for (std::int64_t i = rng.integer(1, 4); i > 0 && !text.empty(); --i) {
    const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
    const char c =
        kBytes[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(kBytes.size()) - 1))];
    switch (rng.integer(0, 3)) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.erase(at, static_cast<std::size_t>(rng.integer(1, 30)));
        break;
      case 2:
        text.insert(at, 1, c);
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

}  // namespace meshloom::tests
