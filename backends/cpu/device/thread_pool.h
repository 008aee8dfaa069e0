// The backend's thread pool. Work is handed out through one atomic counter, in chunks of sizes that the schedule tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "backends/cpu/device/schedule.h"

namespace meshloom::backends::cpu {

class ThreadPool {
 public:
  // The thread that calls run() is one of the `workers`. The others start at once and live as long as the pool; throws
  // Error where one cannot be started. With more workers than cores, waiting threads do not spin, which would keep
  // others from their core.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return workers_; }

  // Calls task(context, begin, end, worker) over disjoint ranges that together are [0, items), and returns when all
  // calls have returned. Rethrows the first exception. Only one run at a time, and none from inside a task. In tasks,
  // subnormal numbers count as zero.
  using Task = void (*)(void* context, std::uint32_t begin, std::uint32_t end, int worker);
  void run(std::uint32_t items, Task task, void* context, Schedule schedule = Schedule::guided);

  // Likewise for any callable (begin, end, worker).
  template <typename F>
  void run(std::uint32_t items, F&& function, Schedule schedule = Schedule::guided) {
    run(
        items,
        [](void* context, std::uint32_t begin, std::uint32_t end, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&function)), schedule);
  }

 private:
  void loop(int worker);
  void end();             // stops all threads
  bool work(int worker);  // runs one chunk of the current run; false when none is left

  int workers_, spins_;
  // The current run. Written only while no chunk is being run, read only by threads that run a chunk.
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::uint32_t items_ = 0;
  // The length of a chunk of an even schedule; 0 = the schedule is guided. May be read for a run that is over, whose chunk is not taken.
  std::atomic<std::uint32_t> even_chunk_{0};
  // The number of the run (32 bits) | items that are not taken yet (32 bits), so that a single compare-exchange takes a
  // chunk and checks that its run is still the current one.
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // items finished
  // Changes when there is a new run or the pool stops; sleeping threads wait on it.
  alignas(64) std::atomic<std::uint32_t> signal_{0};
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace meshloom::backends::cpu
