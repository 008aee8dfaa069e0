// The backend's one pool of threads. Work is handed out through one atomic counter, in chunks that shrink as
// it runs out: few at first, none at the end that keeps the others waiting for long.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace meshloom::backends::cpu {

class ThreadPool {
 public:
  // The calling thread of run() counts as one of `workers`. Threads start at once and live as long as the
  // pool; throws Error where one cannot be started. With more workers than cores none waits by spinning, which
  // would keep another from its core.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return workers_; }

  // task(context, begin, end, worker) over disjoint ranges that together are [0, items); returns when all
  // have returned. Rethrows the first exception. One run at a time, and none from inside a task. In tasks,
  // subnormal numbers count as zero.
  using Task = void (*)(void* context, std::uint32_t begin, std::uint32_t end, int worker);
  void run(std::uint32_t items, Task task, void* context);

  // The same with any callable (begin, end, worker).
  template <typename F>
  void run(std::uint32_t items, F&& function) {
    run(
        items,
        [](void* context, std::uint32_t begin, std::uint32_t end, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&function)));
  }

 private:
  void loop(int worker);
  void end();             // of all threads
  bool work(int worker);  // takes one chunk of the current run; false when there is none left

  int workers_, spins_;
  // The current run. Written only while no chunk is open, read only by holders of a chunk.
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::uint32_t items_ = 0;
  // epoch (32 bits) | items that nobody has taken (32): taking a chunk and seeing that its run is still the
  // current one is a single compare-exchange.
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // items finished
  alignas(64) std::atomic<std::uint32_t> signal_{
      0};  // changes when there is something new: what sleepers wait on
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace meshloom::backends::cpu
