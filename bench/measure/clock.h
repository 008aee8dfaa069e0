// Measures wall time.
#pragma once

#include <algorithm>
#include <chrono>

namespace meshloom::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The seconds that the function takes, never 0.
template <typename F>
double time(F&& function) {
  const Clock::time_point begin = Clock::now();
  function();
  return std::max(1e-9, seconds_since(begin));
}

}  // namespace meshloom::bench
