#include "bench/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "bench/measure/clock.h"
#include "hal/math.h"

namespace meshloom::bench {
namespace {

constexpr int kMaxCalls = 256;  // in one command list
// How long a subject runs untimed before its samples, except with cold buffers: cores that slept, above all
// those of a guest, need up to about 15 ms to reach their speed.
constexpr double kWarmUp = 0.02;
constexpr double kPatience = 0.2;  // seconds that min_samples may take whatever the budget

// The calls of one sample: so many that a sample takes about a millisecond, and neither clock nor launch
// matters.
int calls_of(double once, const Subject& subject, const MeasureOptions& options, bool own_threads) {
  if (options.buffers == Buffers::cold) return 1;
  // If threads sleep between samples, waking them must not matter either.
  const double sample = std::clamp(options.seconds / 50, own_threads ? 5e-3 : 1e-3, 20e-3);
  int calls = static_cast<int>(std::clamp(std::ceil(sample / once), 1.0, static_cast<double>(kMaxCalls)));
  // Every set of buffers is used equally often, so that a sample ends where the next begins.
  const int sets = subject.sets();
  if (calls > 1 || sets > 1) calls = static_cast<int>(hal::round_up(calls, sets));
  return calls;
}

// A GPU that had nothing to do runs at a fraction of its clock, and takes up to some tenths of a second of work to reach it.
constexpr double kGpuWarmUp = 0.3;

// Waits until this process uses no processor time, at most half a second. Threads of other libraries spin for
// a while after a call (those of OpenBLAS for 2^26 clock ticks and more) and would disturb the next subject.
void wait_for_idle_threads() {
  constexpr auto kLook = std::chrono::milliseconds(5);
  for (int looks = 0; looks < 100; ++looks) {
    const std::clock_t used = std::clock();
    std::this_thread::sleep_for(kLook);
    if (std::clock() - used < CLOCKS_PER_SEC / 2000) return;
  }
}

}  // namespace

std::vector<Samples> measure(const std::vector<Subject*>& subjects, const MeasureOptions& options) {
  const auto stopped = [&] { return options.stopped && options.stopped(); };
  std::vector<Samples> result(subjects.size());
  const bool own_threads =
      std::any_of(subjects.begin(), subjects.end(), [](Subject* s) { return s->has_own_threads(); });
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    Subject& subject = *subjects[i];
    subject.enter();
    subject.prepare(1);
    double once = time([&] { subject.run(); });  // drivers compile at the first dispatch
    if (once > options.slow && subjects.size() == 1 && options.buffers == Buffers::warm) {
      result[i].seconds.push_back(once);
      subject.leave();
      return result;
    }
    if (once < 4 * options.seconds) once = time([&] { subject.run(); });
    result[i].calls = calls_of(once, subject, options, own_threads);
    // Every set is run at least once, because all of them are checked.
    subject.prepare(result[i].calls);
    if (result[i].calls > 1 && options.buffers != Buffers::cold) subject.run();
    if (subject.is_gpu() && !options.busy_before) {
      const Clock::time_point awake = Clock::now();
      do subject.run();
      while (seconds_since(awake) < kGpuWarmUp && !stopped());
    }
    subject.leave();
  }
  const double budget = options.seconds * static_cast<double>(subjects.size());
  const Clock::time_point begin = Clock::now();
  double spent = 0;  // in samples
  for (int taken = 0; taken < options.max_samples; ++taken) {
    const double elapsed = own_threads ? spent : seconds_since(begin);
    if (taken > 0 && stopped()) break;
    if (taken >= options.min_samples && (elapsed >= budget || seconds_since(begin) >= 4 * budget)) break;
    if (taken > 0 && elapsed >= std::max(4 * budget, kPatience)) break;
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      Subject& subject = *subjects[i];
      subject.enter();
      if (options.evictor) options.evictor->evict();
      if (own_threads) wait_for_idle_threads();
      if (own_threads && options.buffers != Buffers::cold) {
        const Clock::time_point awake = Clock::now();
        do subject.run();
        while (seconds_since(awake) < kWarmUp);
      }
      const double seconds = time([&] { subject.run(); });
      subject.leave();
      spent += seconds;
      result[i].seconds.push_back(seconds / result[i].calls);
    }
  }
  return result;
}

}  // namespace meshloom::bench
