// Which way to run a call looks best by what the driver's compiler makes of it: an order to try them in, before anything is timed,
// and where there is no GPU to time on.
#pragma once

#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/contract.h"
#include "trainer/execute/candidates.h"
#include "trainer/execute/inspect_call.h"

namespace meshloom::trainer {

// How much of the device's multiplying a call would keep busy, from 0 to 1: of the main loop of each pipeline the multiplying
// cycles by those that its instructions and its local memory take; halved where a SIMD holds one wave only, so that nothing hides
// its waits; and times the share of `cores` (multiprocessors) that its last round of workgroups leaves at work. Pipelines count by
// what they multiply. 0 where nothing is multiplied or no loop could be read. It is not a time: nor memory, nor caches, nor
// products at edges that are thrown away are in it.
struct MultiplyingShare {
  double in_turn =
      0;  // where local memory works while no instruction issues, as it nearly does in published kernels
  double overlapped = 0;  // where it works behind the instructions, as it may
};
MultiplyingShare multiplying_share(const InspectedCall& call, std::int64_t cores);
// Whether a pipeline keeps registers in memory: spills, or arrays that no register holds.
bool keeps_registers_in_memory(const InspectedCall& call);

struct RankedCandidate {
  Candidate candidate;
  InspectedCall inspected;
  double share = 0;  // multiplying_share, in turn
  bool registers_in_memory = false;
  std::string error;  // why it could not be inspected; then it comes last
};

// The best first: those that keep registers in memory come behind the others, and among equals the order is that of `all`.
// `device` was opened by Registry::open_to_inspect.
std::vector<RankedCandidate> rank_candidates(hal::Device& device, const kernels::Contract& contract,
                                             const kernels::Case& call, const std::vector<Candidate>& all);

}  // namespace meshloom::trainer
