// Answers a request to stop in time while the device does not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/run/stop.h"

namespace meshloom::trainer {

class StopDeadline {
 public:
  // A request that the run has not answered after so many seconds, because it waits for its device, is answered for it.
  static constexpr double kSeconds = 1;

  // `answer` is called from a thread of its own and must end the process, or return where it cannot; the run stands still
  // meanwhile, once it no longer waits. `stop` must outlive this object. Without `answer`, nothing happens.
  StopDeadline(const StopSignals& stop, std::function<void()> answer);
  ~StopDeadline();
  StopDeadline(const StopDeadline&) = delete;
  StopDeadline& operator=(const StopDeadline&) = delete;

  // The run has seen the request, and needs at most so many seconds from now to read what it saves from the device.
  void extend(double seconds);

  // While one lives, the run's thread may be waiting for its device, and changes nothing that `answer` reads.
  class Waiting {
   public:
    explicit Waiting(StopDeadline& deadline);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    StopDeadline& deadline_;
  };

 private:
  void watch();

  const StopSignals& stop_;
  std::function<void()> answer_;
  std::mutex mutex_;
  std::condition_variable ending_;
  int waiting_ = 0;  // objects of Waiting
  bool ended_ = false;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  double seconds_ = kSeconds;  // from asked_ on
  std::thread thread_;
};

}  // namespace meshloom::trainer
