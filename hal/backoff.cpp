#include "hal/backoff.h"

#include <algorithm>
#include <thread>

namespace meshloom::hal {

void Backoff::pause() {
  using namespace std::chrono_literals;
  const Clock::time_point now = Clock::now();
  if (began_ == Clock::time_point{}) {
    began_ = now;
    sleep_ = 20us;
  }
  if (now - began_ < 100us) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(sleep_ * 2, std::chrono::microseconds(200us));
}

}  // namespace meshloom::hal
