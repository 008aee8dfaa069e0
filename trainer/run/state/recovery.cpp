#include "trainer/run/state/recovery.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

// A driver that is being reset refuses for a while.
constexpr std::chrono::milliseconds kPauses[] = {std::chrono::milliseconds(0), std::chrono::milliseconds(500),
                                                 std::chrono::milliseconds(2000),
                                                 std::chrono::milliseconds(5000)};

constexpr const char* kAdvice =
    "smaller micro-batches (--set accumulation=N), less clock or power for the device, a newer driver, "
    "another backend "
    "(--device), and the system's log, which says why a driver gave up (journalctl -k), may help";

}  // namespace

void Recovery::run(const std::function<void()>& work, const std::function<std::string()>& release,
                   const std::function<std::int64_t()>& done) {
  for (;;) {
    std::optional<hal::DeviceLost> lost;
    try {
      work();
      return;
    } catch (const hal::DeviceLost& error) {
      if (!p_.open) throw;
      lost = error;
    }
    ++count_;
    in_a_row_ = done() > done_ ? 1 : in_a_row_ + 1;
    done_ = done();
    const hal::DeviceInfo before = p_.device->info();
    const std::string from = release();
    p_.device.reset();
    if (in_a_row_ >= kMaxLosses)
      throw hal::DeviceLost(
          before.id,
          fmt::format("the device must not be lost {} times without a new step; {}", kMaxLosses, kAdvice),
          lost->what());
    p_.note(fmt::format("the device was lost ({}); it is opened again, and the run goes on after {}",
                        lost->what(), from));
    open_again(before);
  }
}

void Recovery::open_again(const hal::DeviceInfo& before) {
  std::string refused;
  for (const std::chrono::milliseconds pause : kPauses) {
    for (auto slept = std::chrono::milliseconds(0); slept < pause && !p_.stopped();
         slept += std::chrono::milliseconds(50))
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    try {
      p_.device = p_.open();
      break;
    } catch (const Error& error) {
      refused = error.what();
    }
  }
  if (!p_.device)
    throw hal::DeviceLost(before.id, fmt::format("the device that was lost must open again; {}", kAdvice),
                          refused);
  const hal::DeviceInfo now = p_.device->info();
  if (now.name == before.name && now.driver == before.driver) return;
  p_.device.reset();
  throw hal::DeviceLost(
      before.id, fmt::format("the device that is opened again must be {} ({})", before.name, before.driver),
      fmt::format("another one, {} ({})", now.name, now.driver));
}

}  // namespace meshloom::trainer
