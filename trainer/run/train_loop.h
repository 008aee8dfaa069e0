// The steps of a run, one after another: each is recorded, and checkpoints and snapshots are taken when they are due.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "trainer/metrics/run_records.h"
#include "trainer/run/ceiling.h"
#include "trainer/run/progress.h"
#include "trainer/run/state/checkpoint_manager.h"
#include "trainer/run/state/recovery.h"
#include "trainer/run/state/snapshots.h"
#include "trainer/run/step_runner.h"
#include "trainer/run/stop_deadline.h"
#include "trainer/run/train.h"

namespace meshloom::trainer {

// What of a run stands on its device: it is made anew when the device was lost.
struct OnDevice {
  std::unique_ptr<Session> session;
  std::unique_ptr<StepRunner> steps;
  std::unique_ptr<FlopsCeiling> ceiling;
  std::function<std::string()> sample;  // writes one; empty = none while training
};

// A step that is repeated, because it came after what the run went on from, is not recorded again: every step has one line
// in metrics.jsonl and one event. The first new step's line says how often the device was lost before it.
class TrainLoop {
 public:
  // All of these must outlive it.
  struct Parts {
    const TrainerConfig& config;
    const StopSignals& stop;
    StopDeadline& deadline;
    Snapshots* snapshots;  // nullptr = none are taken
    Recovery& recovery;
    CheckpointManager& checkpoints;
    RunRecords& records;
    Progress* progress;   // nullptr = nothing is shown
    double sample_every;  // seconds
    RunState& state;
    DivergenceDetector& divergence;
    TrainResult& result;
    const std::function<void(const std::string&)>& note;
  };
  explicit TrainLoop(const Parts& parts) : p_(parts), recorded_(parts.state.step) {}

  // Until the last step is done or a signal came. The state and the detector say where `on` stands.
  void run(OnDevice& on);
  // Takes a snapshot unless the newest is of this step.
  void take_snapshot(OnDevice& on);

  // The last step that was recorded.
  std::int64_t recorded() const { return recorded_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_last() const { return p_.state.step == p_.config.steps; }
  StepRecord record_of(const StepResult& step, double seconds) const;
  void observe_loss(const StepRecord& record);
  void record(OnDevice& on, StepRecord& record, const StepResult& step);
  void compare(const StepRecord& record) const;
  void check_skipped(const StepResult& step);
  void show_sample(OnDevice& on);

  Parts p_;
  std::int64_t recorded_;
  std::map<std::int64_t, double> losses_;  // of the steps that may have to be repeated
  int skipped_ = 0;                        // steps in a row
  Clock::time_point sampled_ = Clock::now(), copied_ = Clock::now();
  double copying_ = 0;  // seconds that the last snapshot took
};

}  // namespace meshloom::trainer
