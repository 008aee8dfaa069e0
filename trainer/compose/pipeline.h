// What the composer needs for a pipeline: which rank has which programs, what it exchanges, and in which order.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/compose/compose.h"
#include "trainer/compose/passes/distributed/stages.h"
#include "trainer/compose/passes/update.h"
#include "trainer/compose/schedule.h"

namespace meshloom::trainer {

class PipelineComposer {
 public:
  // `options` and `mesh`, with an axis pipeline, must outlive it. Throws Error where the schedule does not suit them.
  PipelineComposer(const ComposeOptions& options, const Topology& mesh, const kernels::Catalog& catalog);

  // Deals the program, which has its backward pass, and writes its sums over micro-batches (write_accumulation). Returns the
  // sums that apply_program must add to those of parameters.
  std::vector<std::pair<std::string, std::string>> write_sums(kernels::Builder& builder,
                                                              const std::vector<layers::ParameterInfo>& infos,
                                                              std::vector<kernels::Tensor> gradients,
                                                              const BatchSums& sums);

  // This rank's programs of the partitioned program of a step, which is accumulate or evaluate: one for each chunk.
  std::vector<kernels::Program> take(Step step, const kernels::Program& program, Plan& plan);
  // The programs of such a chunk when its passes are done, by phase; of evaluate that one.
  PhasePrograms phases(Step step, int chunk, kernels::Program program, Plan& plan);
  // The programs of one of these for every slot, with their names in the plan.
  std::vector<std::pair<ProgramKey, kernels::Program>> slots(Step step, int chunk,
                                                             const kernels::Program& program,
                                                             const PhasePrograms& phases, Plan& plan);
  // What this rank's stage computes of the update.
  kernels::Program apply(const kernels::Program& program, Plan& plan);

  // Writes the order of an update, and of an evaluation; when all programs were taken.
  void finish(Plan& plan);

 private:
  int part(int chunk) const { return chunk * stages_ + stage_; }
  int last_part() const { return stages_ * chunks_ - 1; }
  int rank_of(int stage) const { return ranks_.at(static_cast<std::size_t>(stage)); }
  void note_holders(const kernels::Program& program, const Parts& parts, Plan& plan);
  void note_home(const std::string& name, const kernels::Value& value, Plan& plan) const;
  int add(Plan& plan, bool out, int stage, std::int32_t tag, std::vector<std::string> values) const;
  int transfer_of(const StepAction& action, Plan& plan);
  void add_updates(std::vector<StepAction>& schedule, Plan& plan, bool before) const;
  void evaluation(Plan& plan);

  const ComposeOptions& options_;
  const Topology& mesh_;
  const kernels::Catalog& catalog_;
  int stages_, chunks_, stage_;
  std::vector<int> ranks_;                        // by stage
  std::vector<std::vector<StepAction>> actions_;  // of all stages
  std::vector<int> slots_;                        // by chunk of this stage
  Deal deal_;
  std::vector<GradientPart> shared_;                 // gradients of parameters that several parts use
  std::map<std::string, std::vector<int>> holders_;  // stages
  // What goes over the edges of a chunk of accumulate or evaluate: {step, chunk, backward, out}.
  std::map<std::tuple<Step, int, bool, bool>, std::vector<std::string>> edges_;
  std::map<int, std::set<std::string>> slotted_;  // by chunk
  std::set<ProgramKey> empty_;                    // programs that compute nothing
  std::map<std::tuple<StepAction::Kind, Step, int, int>, int> transfers_;
};

}  // namespace meshloom::trainer
