#include "hal/wrappers/slowed_device.h"

#include <chrono>
#include <thread>
#include <utility>

#include "hal/wrappers/forwarding_device.h"

namespace meshloom::hal {
namespace {

class SlowedDevice : public ForwardingDevice {
 public:
  SlowedDevice(std::unique_ptr<Device> inner, double factor)
      : ForwardingDevice(std::move(inner)), factor_(factor) {}

  void submit(CommandList& list) override {
    using Clock = std::chrono::steady_clock;
    ForwardingDevice::wait();  // for what came before, whose time has been slept through
    const Clock::time_point begin = Clock::now();
    ForwardingDevice::submit(list);
    ForwardingDevice::wait();
    std::this_thread::sleep_for((factor_ - 1) * std::chrono::duration<double>(Clock::now() - begin));
  }

 private:
  double factor_;
};

}  // namespace

std::unique_ptr<Device> slowed(std::unique_ptr<Device> inner, double factor) {
  if (!(factor >= 1)) throw Error(inner->info().id, "a factor must be at least 1", std::to_string(factor));
  return std::make_unique<SlowedDevice>(std::move(inner), factor);
}

}  // namespace meshloom::hal
