#include "bench/core/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "bench/core/clock.h"
#include "hal/math.h"

namespace meshloom::bench {
namespace {

constexpr int kMostCalls = 256;  // of one list
// So long a subject runs untimed after threads have settled, but with cold buffers: cores that slept, above all a guest's, take up to some 15 ms to come back.
constexpr double kWarmUp = 0.02;
constexpr double kPatience = 0.2;  // seconds that the fewest samples may take whatever the budget

// Calls of one sample: as many as fill a good part of a millisecond or two, so that neither clock nor launch
// counts.
int calls_of(double once, const Subject& subject, const MeasureOptions& options, bool settle) {
  if (options.buffers == Buffers::cold) return 1;
  // Where threads sleep between samples, waking them must not count either.
  const double sample = std::clamp(options.seconds / 50, settle ? 5e-3 : 1e-3, 20e-3);
  int calls = static_cast<int>(std::clamp(std::ceil(sample / once), 1.0, static_cast<double>(kMostCalls)));
  // Every set as often as the others, so that a sample ends where the next begins.
  const int sets = subject.sets();
  if (calls > 1 || sets > 1) calls = static_cast<int>(hal::round_up(calls, sets));
  return calls;
}

// Threads of other libraries spin for a while after a call (OpenBLAS's for 2^26 clock ticks and more), which would be
// charged to whoever runs next: until this process has no use of the processor, half a second at most.
void settle_threads() {
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
  const bool settle =
      std::any_of(subjects.begin(), subjects.end(), [](Subject* s) { return s->brings_threads(); });
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
    result[i].calls = calls_of(once, subject, options, settle);
    // At least once over every set: all of them are checked.
    subject.prepare(result[i].calls);
    if (result[i].calls > 1 && options.buffers != Buffers::cold) subject.run();
    subject.leave();
  }
  const double budget = options.seconds * static_cast<double>(subjects.size());
  const Clock::time_point begin = Clock::now();
  double spent = 0;  // in samples
  for (int taken = 0; taken < options.most; ++taken) {
    const double elapsed = settle ? spent : seconds_since(begin);
    if (taken > 0 && stopped()) break;
    if (taken >= options.fewest && (elapsed >= budget || seconds_since(begin) >= 4 * budget)) break;
    if (taken > 0 && elapsed >= std::max(4 * budget, kPatience)) break;
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      Subject& subject = *subjects[i];
      subject.enter();
      if (options.evictor) options.evictor->evict();
      if (settle) settle_threads();
      if (settle && options.buffers != Buffers::cold) {
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
