// Finds the fastest variant of each call within a bounded time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/core/workload.h"
#include "hal/device.h"
#include "trainer/compose/tuning/tuning.h"

namespace meshloom::bench {

// A challenger wins when it is faster than the standard variant by this much, in the fastest samples of both (which a
// busy neighbour changes least) and in the median of pairs, and faster at all in three quarters of these.
constexpr double kMinGain = 0.03;
// The best of many noisy measurements looks better than it is: so many are measured again, and these times count.
constexpr int kFinalists = 3;

struct Trial {
  std::string call, shape, standard, winner;  // variants, with their parameters where tuning chose them
  std::int64_t per_step = 0;
  double standard_seconds = 0, seconds = 0;  // of one call, the fastest samples
  double gain = 1;                           // standard_seconds / seconds where there is a winner
  int challengers = 0, untried = 0;          // measured, and not for want of time
  std::vector<std::string> problems;         // of challengers that failed or were wrong
};

struct TuneOptions {
  double budget = 600;  // seconds in all, but at least one pair of samples per challenger that is begun
  std::function<bool()> stopped;                               // may be empty
  std::function<void(int, int, const std::string&)> progress;  // may be empty
};

// Every variant that fits (but the reference), with its own and with its alternative parameters, against the
// one that composing chooses, in turn, each result checked; a challenger that throws, is wrong or is hopeless
// in its first samples costs only itself. The budget is shared by the challengers, and no call takes more
// than a quarter of what is left for it and the calls behind it. Those that `tuning` has come last, so that a
// run which was cut short is gone on with. `save` is called after every call, so that nothing found is lost;
// a call whose challengers were not all tried is kept only where its winner gains more than what is known.
std::vector<Trial> tune(hal::Device& device, const kernels::Catalog& catalog,
                        const std::vector<Workload>& workloads, const TuneOptions& options,
                        trainer::Tuning& tuning, const std::function<void()>& save);

std::string to_text(const std::vector<Trial>& trials);

}  // namespace meshloom::bench
