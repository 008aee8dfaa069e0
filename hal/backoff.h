// Pauses between two looks at something that another thread or process does.
#pragma once

#include <chrono>

namespace meshloom::hal {

// Looks again at once for about 100 us, which messages of a few KiB take; then sleeps, 20 us at first and up to 200 us,
// so that ranks which wait leave the cores to those which compute.
class Backoff {
 public:
  void pause();
  // Something happened.
  void reset() { began_ = {}; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_;  // {} = not begun
  std::chrono::microseconds sleep_{};
};

}  // namespace meshloom::hal
