// How long a call would take, by what the driver's compiler makes of its kernels: for GPUs that are not at hand.
//
// Of the main loop of each pipeline the listing tells the cycles in which instructions issue, those of them that multiply, and
// those of local memory (hal/inspection.h). Where the two overlap wholly a loop takes the longer of both; in published kernels
// they do so only where the instructions were arranged by hand, and others take nearly the sum. So `best` is the time by the longer,
// `likely` by the sum, and both count the multiprocessors that the last round of workgroups leaves idle. What runs is never faster
// than its bytes at the bandwidth that other kernels reach (efficiencies.json), and every dispatch starts.
// bench/results/2026-11-26-estimates.md holds the model to published kernels: of 11 times `likely` was off by 10 % on average, and by
// 14 % with the factor of the other kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "hal/device.h"
#include "kernels/core/contract.h"
#include "trainer/execute/inspect_call.h"

namespace meshloom::trainer {

enum class Bound : std::uint8_t { multiplying, memory, launches, unknown };
std::string_view to_string(Bound bound);

struct EstimatedCall {
  double likely_seconds = 0, best_seconds = 0;
  double flops = 0, bytes = 0;  // of the contract
  int dispatches = 0;           // each of which starts, in both times
  double peak_share =
      0;  // flops / (likely_seconds x the rate of the unit that multiplies); 0 where that is unknown
  Bound bound = Bound::
      unknown;  // of `likely`; unknown where it multiplies and no loop could be read: then the efficiency that
                // such variants reach elsewhere is taken, for both times
};
// `call` is what inspect_choice found of the call that `view` describes, on such a device.
EstimatedCall estimate_call(const InspectedCall& call, const kernels::Contract& contract,
                            const kernels::CallView& view, const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
