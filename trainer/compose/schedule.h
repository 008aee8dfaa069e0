// The order in which the ranks of a pipeline run their programs, as data.
//
// The layers are dealt to stages x chunks parts, in order: part p is chunk p / stages of stage p % stages. Activations go from
// part to part, and their gradients back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/compose/step.h"

namespace meshloom::trainer {

enum class ScheduleKind : std::uint8_t {
  gpipe,        // all forward, then all backward (Huang et al., 2019): every micro-batch is in flight
  one_f_one_b,  // a backward as soon as there is one (Narayanan et al., PipeDream-Flush, 2021): `stages` in flight
  interleaved,  // the same with several chunks of layers a stage (Narayanan et al., Megatron-LM, 2021): a smaller bubble
  zero_bubble  // the gradients of weights apart, where a stage would wait (Qi et al., ZB-H1, 2024)
};
std::string_view to_string(ScheduleKind kind);  // "gpipe", "1f1b", "interleaved", "zero_bubble"
ScheduleKind schedule_kind_from_string(std::string_view name);  // throws Error

// One thing that a rank does in an update.
struct StepAction {
  enum class Kind : std::uint8_t { run, send, receive } kind = Kind::run;
  Step step = Step::forward;  // of the program that runs, or whose results move
  int chunk = 0, slot = 0;    // of the program that runs; of the sender or receiver itself
  int micro_batch = -1;       // -1 = none: the program reads no batch
  int peer = -1;              // the stage that receives or sends
  int transfer = -1;          // which of Plan::transfers; set where a plan is made
  bool operator==(const StepAction&) const = default;

  ProgramKey program() const { return {step, chunk, slot}; }
};
std::string to_string(const StepAction& action);  // "run backward of micro-batch 3, chunk 0, slot 1"

// What one stage does for the micro-batches of an update: runs of forward, backward, and for zero_bubble weights, each behind
// the receive, and in front of the send, that it needs. Slots are the lowest that are free. Throws Error for less than 2 stages,
// more stages than micro-batches, another number of chunks than 1 where the kind is not interleaved, and for interleaved
// less than 2, or micro-batches that are no multiple of the stages.
std::vector<StepAction> pipeline_actions(ScheduleKind kind, int stage, int stages, int chunks,
                                         int micro_batches);

// Checks the actions of all stages: every part runs every micro-batch forward once and then backward once (and weights after
// that, if any does), every message that is received was sent, in that order between two stages, and every one is received;
// nobody waits for ever; a slot holds one micro-batch at a time. A send does not wait for its receiver. Returns by stage and
// chunk how many slots are in use at most. Throws Error.
std::vector<std::vector<int>> check_actions(const std::vector<std::vector<StepAction>>& of_all, int chunks,
                                            int micro_batches);

// The time that an update takes when the runs take so long and messages no time, and how long each stage computes in it.
struct PipelineTime {
  double seconds = 0;
  std::vector<double> busy;  // by stage
  double bubble() const;     // the share of the time in which the stages wait, over all of them
};
PipelineTime pipeline_time(const std::vector<std::vector<StepAction>>& of_all,
                           const std::function<double(int stage, const StepAction& run)>& seconds);

}  // namespace meshloom::trainer
