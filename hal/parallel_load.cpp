#include "hal/parallel_load.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace meshloom::hal {

void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work,
                          const LoadProgress& progress) {
  if (count == 0) return;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0, done = 0, running = 0;
  std::exception_ptr error;
  const auto run = [&] {
    std::unique_lock lock(mutex);
    while (next < count && !error) {
      const std::size_t i = next++;
      lock.unlock();
      std::exception_ptr failed;
      try {
        work(i);
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      if (failed && !error) error = failed;
      ++done;
      changed.notify_all();
    }
    --running;
    changed.notify_all();
  };
  const std::size_t wanted = std::min<std::size_t>(count, std::max(std::thread::hardware_concurrency(), 1u));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < wanted; ++i) {
    {
      const std::lock_guard lock(mutex);
      ++running;
    }
    try {
      threads.emplace_back(run);
    } catch (const std::system_error&) {  // the process may have no more threads
      const std::lock_guard lock(mutex);
      --running;
      break;
    }
  }
  if (threads.empty()) {
    running = 1;
    run();
  }
  std::unique_lock lock(mutex);
  for (std::size_t said = 0;;) {
    changed.wait(lock, [&] { return running == 0 || done > said; });
    said = done;
    const bool ended = running == 0;
    lock.unlock();
    if (progress && said > 0) progress(said, count);
    if (ended) break;
    lock.lock();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace meshloom::hal
