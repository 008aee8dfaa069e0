#include "trainer/run/stop_deadline.h"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

StopDeadline::StopDeadline(const StopSignals& stop, std::function<void()> answer)
    : stop_(stop), answer_(std::move(answer)) {
  if (!answer_) return;
  // Signals go to the run's thread, whose system calls they interrupt.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // a limit of processes: requests to stop wait for the device
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StopDeadline::~StopDeadline() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

void StopDeadline::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, kLook, [this] { return ended_; })) {
    if (!asked_ && stop_.requested()) asked_ = Clock::now();
    if (!asked_ || waiting_ == 0) continue;
    if (std::chrono::duration<double>(Clock::now() - *asked_).count() < seconds_) continue;
    // The run's thread cannot leave its Waiting while the mutex is held.
    answer_();
    return;
  }
}

void StopDeadline::extend(double seconds) {
  const std::lock_guard lock(mutex_);
  asked_ = Clock::now();
  seconds_ = seconds;
}

StopDeadline::Waiting::Waiting(StopDeadline& deadline) : deadline_(deadline) {
  const std::lock_guard lock(deadline_.mutex_);
  ++deadline_.waiting_;
}

StopDeadline::Waiting::~Waiting() {
  const std::lock_guard lock(deadline_.mutex_);
  --deadline_.waiting_;
}

}  // namespace meshloom::trainer
