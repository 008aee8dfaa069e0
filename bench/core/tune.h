// Finds the fastest variant of each call within a bounded time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/workload.h"
#include "hal/device.h"
#include "trainer/compose/tuning/tuning.h"

namespace meshloom::bench {

// A challenger wins when it is faster than the standard variant by this fraction, both in the fastest samples
// (which other programs affect least) and in the median of the ratios of adjacent samples, and is faster in
// three quarters of the latter.
constexpr double kMinGain = 0.03;
// The best of many noisy measurements looks better than it is. So many of the best are measured again, and
// these times count.
constexpr int kFinalists = 3;

struct TuningResult {
  std::string call, shape, standard, winner;  // variants, with the parameters that tuning chose
  std::int64_t per_step = 0;
  double standard_seconds = 0, seconds = 0;  // of one call, from the fastest samples
  double gain = 1;                           // standard_seconds / seconds if a challenger won
  int challengers = 0, untried = 0;          // measured, and not measured for lack of time
  std::vector<std::string> problems;         // challengers that failed or were wrong
};

struct TuneOptions {
  double budget = 600;            // seconds in total, but a challenger that is begun gets at least one sample
  std::function<bool()> stopped;  // may be empty
  std::function<void(int, int, const std::string&)> progress;  // may be empty
  // The same device, opened by Registry::open_to_inspect: what looks best to its compiler is tried first. nullptr = its driver
  // does not say.
  hal::Device* inspector = nullptr;
};

// Times every variant that fits, without the reference, with its own and with alternative parameters, in turn
// with the one that composing chooses, and checks every result. A challenger that throws, is wrong, or is
// very slow in its first samples is dropped. The challengers share the budget, and no call takes more than a
// quarter of the time that is left for it and later calls. Calls that are already in `tuning` come last, so
// that a run that was cut short can be continued. `save` is called after every call. A call whose challengers
// were not all tried is stored only if its winner gains more than the known one.
std::vector<TuningResult> tune(hal::Device& device, const kernels::Catalog& catalog,
                               const std::vector<Workload>& workloads, const TuneOptions& options,
                               trainer::Tuning& tuning, const std::function<void()>& save);

std::string to_text(const std::vector<TuningResult>& trials);

}  // namespace meshloom::bench
