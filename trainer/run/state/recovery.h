// Opens the device of a run again when it is lost, so that the run goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "hal/device.h"

namespace meshloom::trainer {

class Recovery {
 public:
  // So many losses in a row, without a step that is new, end the run.
  static constexpr int kMaxLosses = 3;

  struct Parts {
    std::unique_ptr<hal::Device>& device;  // replaced when it is lost; empty where no other could be opened
    std::function<std::unique_ptr<hal::Device>()> open;  // opens the same device; empty = a loss ends the run
    std::function<bool()> stopped;                       // whether someone asks the run to stop
    std::function<void(const std::string&)> note;
  };
  explicit Recovery(Parts parts) : p_(std::move(parts)) {}

  // Calls `work` until it does not lose the device. After a loss calls `release`, which must destroy all that stands on the
  // device and say where `work` will go on ("step 40, from the host's memory"), and opens the device again. `done`
  // gives the number of steps that were done so far and need not be done again to be new. Throws DeviceLost, which says what
  // to try, after kMaxLosses; the device is destroyed then.
  void run(const std::function<void()>& work, const std::function<std::string()>& release,
           const std::function<std::int64_t()>& done);

  // Losses since this was asked last.
  int take_count() { return std::exchange(count_, 0); }

 private:
  void open_again(const hal::DeviceInfo& before);

  Parts p_;
  int in_a_row_ = 0, count_ = 0;
  std::int64_t done_ = -1;  // at the last loss
};

}  // namespace meshloom::trainer
