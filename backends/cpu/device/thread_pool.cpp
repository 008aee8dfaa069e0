#include "backends/cpu/device/thread_pool.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "hal/error.h"

namespace meshloom::backends::cpu {
namespace {

// Spins for longer than the gap between two dispatches, and short enough to leave the core to others.
constexpr int kSpins = 4000;
// A chunk of a guided schedule is 1 / kShare of a worker's equal share of the remaining items.
constexpr std::uint32_t kShare = 3;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// While one exists, subnormal numbers count as zero: a processor may take a hundred times as long to multiply one, and
// gradients have many.
class NoSubnormals {
 public:
#if defined(__x86_64__)
  NoSubnormals() : before_(_mm_getcsr()) {
    constexpr unsigned kResults = 0x8000, kOperands = 0x0040;
    _mm_setcsr(before_ | kResults | kOperands);
  }
  ~NoSubnormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  NoSubnormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" ::"r"(before_ | std::uint64_t{1} << 24));
  }
  ~NoSubnormals() { __asm__ volatile("msr fpcr, %0" ::"r"(before_)); }

 private:
  std::uint64_t before_;
#endif
};

template <typename T>
void wait_while_equal(const std::atomic<T>& value, T old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int workers)
    : workers_(std::max(1, workers)),
      spins_(static_cast<unsigned>(workers_) > std::max(1u, std::thread::hardware_concurrency()) ? 0
                                                                                                 : kSpins) {
  threads_.reserve(static_cast<std::size_t>(workers_ - 1));
  try {
    for (int worker = 1; worker < workers_; ++worker) threads_.emplace_back([this, worker] { loop(worker); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size() + 1;
    end();
    throw Error("cpu",
                "the operating system must start " + std::to_string(workers_) +
                    " threads; MESHLOOM_THREADS=" + std::to_string(started) + " does with fewer",
                std::to_string(started) + ", then: " + error.code().message());
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ThreadPool::loop(int worker) {
  [[maybe_unused]] const NoSubnormals set{};
  for (;;) {
    const std::uint32_t seen = signal_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    while (work(worker)) {
    }
    wait_while_equal(signal_, seen, spins_);
  }
}

bool ThreadPool::work(int worker) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  std::uint32_t left = 0, count = 0;
  do {
    left = static_cast<std::uint32_t>(state);
    if (left == 0) return false;
    const std::uint32_t even = even_chunk_.load(std::memory_order_relaxed);
    count =
        even > 0 ? std::min(left, even) : (left - 1) / (kShare * static_cast<std::uint32_t>(workers_)) + 1;
  } while (!state_.compare_exchange_weak(state, state - count, std::memory_order_acq_rel));
  const std::uint32_t items = items_, begin = items - left, end = begin + count;
  try {
    task_(context_, begin, end, worker);
  } catch (...) {
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  if (done_.fetch_add(count, std::memory_order_acq_rel) + count == items) done_.notify_one();
  return true;
}

void ThreadPool::run(std::uint32_t items, Task task, void* context, Schedule schedule) {
  if (items == 0) return;
  [[maybe_unused]] const NoSubnormals set{};
  if (workers_ == 1 || items == 1) {
    task(context, 0, items, 0);
    return;
  }
  task_ = task;
  context_ = context;
  items_ = items;
  even_chunk_.store(schedule == Schedule::even ? (items - 1) / static_cast<std::uint32_t>(workers_) + 1 : 0,
                    std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(epoch << 32 | items, std::memory_order_release);
  signal_.fetch_add(1, std::memory_order_release);
  signal_.notify_all();
  while (work(0)) {
  }
  for (std::uint32_t finished = done_.load(std::memory_order_acquire); finished != items;
       finished = done_.load(std::memory_order_acquire))
    wait_while_equal(done_, finished, spins_);
  if (failure_) {
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    std::rethrow_exception(failure);
  }
}

}  // namespace meshloom::backends::cpu
