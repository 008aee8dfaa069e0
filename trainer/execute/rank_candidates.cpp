#include "trainer/execute/rank_candidates.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

// The share of the cores that has work, on average over the rounds that the workgroups take.
double working_cores(const InspectedPipeline& pipeline, std::int64_t cores) {
  const double groups = 1.0 * pipeline.groups[0] * pipeline.groups[1] * pipeline.groups[2];
  if (groups <= 0 || cores <= 0) return 1;
  return groups / (std::ceil(groups / static_cast<double>(cores)) * static_cast<double>(cores));
}

}  // namespace

MultiplyingShare multiplying_share(const InspectedCall& call, std::int64_t cores) {
  // Kernels that add parts up or prepare operands multiply little, in loops of few turns; memory is what they wait for.
  constexpr double kMinOfLargest = 0.25;
  double largest = 0;
  for (const InspectedPipeline& pipeline : call.pipelines)
    if (const hal::LoopInspection* loop = pipeline.found.main_loop(); loop && loop->issue_cycles > 0)
      largest = std::max(largest, loop->multiply_cycles / loop->issue_cycles);
  double multiplied = 0, in_turn = 0, overlapped = 0;
  for (const InspectedPipeline& pipeline : call.pipelines) {
    const hal::LoopInspection* loop = pipeline.found.main_loop();
    if (!loop || loop->multiply_cycles <= 0 ||
        loop->multiply_cycles < kMinOfLargest * largest * loop->issue_cycles)
      continue;
    const double iterations = static_cast<double>(hal::invocations(pipeline.spec.workgroup)) *
                              pipeline.groups[0] * pipeline.groups[1] * pipeline.groups[2] *
                              std::max(1, pipeline.dispatches);
    const double slower =
        (pipeline.found.waves && *pipeline.found.waves < 2 ? 2 : 1) / working_cores(pipeline, cores);
    const double local = loop->local_cycles.value_or(0);
    multiplied += iterations * loop->multiply_cycles;
    in_turn += iterations * (loop->issue_cycles + local) * slower;
    overlapped += iterations * std::max(loop->issue_cycles, local) * slower;
  }
  if (multiplied <= 0) return {};
  return {multiplied / in_turn, multiplied / overlapped};
}

bool keeps_registers_in_memory(const InspectedCall& call) {
  return std::any_of(call.pipelines.begin(), call.pipelines.end(), [](const InspectedPipeline& pipeline) {
    return pipeline.found.spilled.value_or(0) > 0 || pipeline.found.scratch_bytes.value_or(0) > 0;
  });
}

std::vector<RankedCandidate> rank_candidates(hal::Device& device, const kernels::Contract& contract,
                                             const kernels::Case& call, const std::vector<Candidate>& all) {
  std::vector<RankedCandidate> ranked;
  for (const Candidate& candidate : all) {
    RankedCandidate& one = ranked.emplace_back();
    one.candidate = candidate;
    try {
      kernels::Choice choice;
      choice.variant = candidate.variant;
      choice.params = candidate.fit.params;
      choice.workspace_bytes = candidate.fit.workspace_bytes;
      one.inspected = inspect_choice(device, contract, call, choice);
      one.share = multiplying_share(one.inspected, device.info().profile.cores).in_turn;
      one.registers_in_memory = keeps_registers_in_memory(one.inspected);
    } catch (const Error& error) {
      one.error = error.what();
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedCandidate& a, const RankedCandidate& b) {
    return std::tuple(!a.error.empty(), a.registers_in_memory, -a.share) <
           std::tuple(!b.error.empty(), b.registers_in_memory, -b.share);
  });
  return ranked;
}

}  // namespace meshloom::trainer
