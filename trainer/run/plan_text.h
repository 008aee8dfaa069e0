// A plan in words: memory, time and kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hal/device.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// The chosen and refused variants of an op.
struct OpSummary {
  std::map<std::string, int> calls;            // variant -> calls
  std::map<std::string, std::string> refused;  // variant -> the first reason
};

// The ops of all programs of the plan.
struct PlanSummary {
  std::map<std::string, OpSummary> ops;
  std::map<std::string, int> views;  // op -> number of views, which run no kernel
};
PlanSummary summarize(const Plan& plan);

// The likely speed of one update (Plan::update_predicted_seconds).
struct PlanSpeed {
  double seconds = 0;  // 0 = nothing is known
  double tokens_per_second = 0;
  double mfu = 0;  // of the profile's peak for the recipe's dtype; 0 = it has none
  // The parts of the seconds by what they rest on (kernels::TimeBasis), "measured" and the others, and copies.
  std::map<std::string, double> parts;
  // If its calls reached what published runs on such chips do (cost/published.h), which are not of this program's kernels.
  double published_seconds = 0;  // 0 = none are known, or the recipe does not compute in 16 bits
};
PlanSpeed speed_of(const TrainerConfig& config, const Plan& plan, const hal::DeviceInfo& device);

// What `meshloom plan` prints. `config` is the resolved recipe that the plan was composed for.
std::string plan_text(const TrainerConfig& config, const Plan& plan, const hal::DeviceInfo& device);
// Its part on the device's memory, and that on the chosen kernels.
std::string memory_text(const Plan& plan, const hal::DeviceInfo& device);
std::string kernels_text(const Plan& plan);
// The order of tokens over the axis seq, and what its first and its last rank compute of attention; "" where there is no such
// axis. `last` is the plan of a rank that is the last along it.
std::string sequence_text(const TrainerConfig& config, const Plan& first, const Plan& last);
// What a stage of a pipeline has, by the plans of one rank of each, and the bubble of each schedule that is possible, by
// the predicted times of the stages without that of moves. "" where there is no pipeline.
struct StageSummary {
  std::vector<std::string> layers;
  std::int64_t parameters = 0, peak_bytes = 0;
  int slots = 0;       // micro-batches in flight at most
  double seconds = 0;  // of its programs in an update
};
struct PipelineSummary {
  std::vector<StageSummary> stages;
  std::map<std::string, double> bubbles;  // by schedule
};
PipelineSummary summarize_pipeline(const TrainerConfig& config, const std::vector<Plan>& stages);
std::string pipeline_text(const TrainerConfig& config, const PipelineSummary& summary);
// The lines on the launches and the submissions of a step; "" where a device has none.
std::string submissions_text(const Plan& plan, const kernels::Catalog& catalog,
                             const hal::DeviceInfo& device);

// A line for each parameter: its path, its type, how it is trained, and its state in the optimizer.
std::string parameters_text(const Plan& plan);

}  // namespace meshloom::trainer
