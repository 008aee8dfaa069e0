#include "trainer/execute/estimate_call.h"

#include <algorithm>
#include <string_view>

#include "trainer/compose/cost/cost_model.h"
#include "trainer/compose/passes/roofline.h"
#include "trainer/execute/rank_candidates.h"

namespace meshloom::trainer {
namespace {

// The part of the data sheet's rate that is left when nothing but the model's cycles is counted: clocks under load, waits,
// conflicts. Fitted to the published kernels of the page that the header names; a GPU of neither gets the mean.
double sustained_rate(std::string_view isa) {
  if (isa.starts_with("sm_")) return 0.80;   // 5 kernels on an RTX A6000
  if (isa.starts_with("gfx1")) return 0.88;  // 3 kernels, each on an RX 7900 XTX and an RX 7600 XT
  return 0.85;
}

}  // namespace

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::multiplying:
      return "multiplying";
    case Bound::memory:
      return "memory";
    case Bound::launches:
      return "launches";
    case Bound::unknown:
      break;
  }
  return "-";
}

EstimatedCall estimate_call(const InspectedCall& call, const kernels::Contract& contract,
                            const kernels::CallView& view, const hal::DeviceInfo& device) {
  EstimatedCall estimate;
  estimate.flops = contract.flops(view);
  estimate.bytes = contract.bytes(view);
  const Efficiency& elsewhere = efficiency_of(call.choice, device);
  double rate = unit_rate(call.choice, view, device);
  if (rate <= 0) rate = hal::peak_flops(device.profile, hal::DType::f32);
  double likely = 0, best = 0;
  // Where few operations are done to what is loaded, they are no products of a main loop, and memory takes longer.
  constexpr double kMinIntensity = 4;  // FLOP a byte
  if (rate > 0 && estimate.flops >= kMinIntensity * estimate.bytes && estimate.flops > 0) {
    const MultiplyingShare share = multiplying_share(call, device.profile.cores);
    const double ideal = estimate.flops / rate, sustained = sustained_rate(device.profile.isa);
    likely = share.in_turn > 0 ? ideal / (share.in_turn * sustained) : ideal / elsewhere.flops;
    best = share.overlapped > 0 ? ideal / (share.overlapped * sustained) : likely;
    estimate.bound = share.in_turn > 0 ? Bound::multiplying : Bound::unknown;
  }
  const double bandwidth = device.profile.memory_bytes_per_second;
  double memory = bandwidth > 0 ? estimate.bytes / (bandwidth * elsewhere.bytes) : 0;
  // What kernels of the call leave in the workspace for the next: sums of parts, copies in f32, dequantized weights. Until it is written
  // the next cannot begin.
  if (bandwidth > 0) {
    const double written = static_cast<double>(call.choice.workspace_bytes) / (bandwidth * elsewhere.bytes);
    if (likely > 0) likely += written, best += written;
    memory += 2 * written;
  }
  if (memory >= likely && memory > 0) estimate.bound = Bound::memory;
  for (const InspectedPipeline& one : call.pipelines) estimate.dispatches += std::max(1, one.dispatches);
  const double launches = estimate.dispatches * launch_seconds(device).first;
  if (launches > std::max(likely, memory)) estimate.bound = Bound::launches;
  estimate.likely_seconds = launches + std::max(likely, memory);
  estimate.best_seconds = launches + std::max(best, memory);
  if (rate > 0 && estimate.likely_seconds > 0)
    estimate.peak_share = estimate.flops / (estimate.likely_seconds * rate);
  return estimate;
}

}  // namespace meshloom::trainer
