// What a published run computes and moves in one step, by the plan that is composed for it: what its time is predicted from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/plans/chips.h"
#include "bench/plans/runs.h"
#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/cost/published.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

// Messages between ranks of a group, without those to the rank itself.
struct GroupMoves {
  std::string what;        // gather, reduce, tensor, pipeline, experts, context
  std::int64_t ranks = 1;  // of the group
  bool inner = true;       // whether its ranks are in one box
  double bytes = 0;        // out of this rank, a step
  double count = 0;        // collectives
};

struct StepFeatures {
  hal::Profile profile;  // of the chip, with its own memory rate
  Chip chip;
  std::vector<std::pair<trainer::CallCost, double>> calls;  // and how often a step runs each
  std::vector<GroupMoves> moves;
  double bubble = 0;  // the part of a step's computing that a pipeline adds
  double model_flops =
      0;                  // of a step and chip, 6 N a token and attention, for the constant of one MFU a chip
  double peak_bytes = 0;  // planned memory of a chip
  std::vector<std::string> simplified;  // what was not composed as the run has it
};

// The recipe of a run, without the axes pipeline, seq and expert: of one stage, one part of the sequence, and a rank's experts.
trainer::TrainerConfig recipe_of(const PublishedRun& run);

// Composes runs on null devices. One layer and two are composed, and what the second adds stands for all others. Of the axes data
// and fsdp at most `composed_ranks` ranks are composed, and what a rank of more holds and moves follows from their number.
class FeatureComposer {
 public:
  FeatureComposer(const hal::Registry& devices, const kernels::Catalog& catalog,
                  std::int64_t composed_ranks = 4)
      : devices_(devices), catalog_(catalog), composed_ranks_(composed_ranks) {}
  // Throws Error for a run that cannot be composed, with the reason.
  StepFeatures compose(const PublishedRun& run);
  std::size_t plans() const { return parts_.size(); }  // that were composed; equal ones are composed once

 private:
  struct Part;  // of one plan
  const Part& part(const PublishedRun& run, const Chip& chip, std::int64_t count);
  std::int64_t composed(std::int64_t ranks) const;

  const hal::Registry& devices_;
  const kernels::Catalog& catalog_;
  std::int64_t composed_ranks_;
  std::map<std::string, std::shared_ptr<const Part>> parts_;
};

}  // namespace meshloom::bench
