// Saves the checkpoints of a run while it trains, removes old ones, and marks unhealthy ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/metrics/failure_reporter.h"
#include "trainer/metrics/run_records.h"
#include "trainer/run/state/directory_lock.h"
#include "trainer/run/state/divergence_detector.h"
#include "trainer/run/state/run_state.h"

namespace meshloom::trainer {

class CheckpointManager {
 public:
  // All of these must outlive it.
  struct Parts {
    const std::string& out;
    std::int64_t keep;
    // What is saved for `state`; `reason` as in contents_of(). May throw what reading the device throws.
    const std::function<CheckpointContents(const RunState& state, const std::string& reason)>& contents;
    DirectoryLock& lock;
    RunRecords& records;
    FailureReporter& failures;
    const std::function<void(const std::string&)>& note;
  };
  // `saved` is the step of the newest checkpoint in `out`; -1 = there is none.
  CheckpointManager(const Parts& parts, std::int64_t saved) : p_(parts), saved_(saved) {}

  // To be called after every step. When the run has diverged, notes that and marks the checkpoints of bad
  // parameters as unhealthy; removes checkpoints that need not be kept any more. Throws LockLost.
  void observe(const DivergenceDetector& divergence, const RunState& state);
  // Saves `state`, after syncing the records up to it. Returns whether the newest checkpoint is of this step:
  // an error of the file system is noted once and gives false. Throws LockLost, and what reading the device
  // throws.
  bool save(const RunState& state, const DivergenceDetector& divergence);
  // To be called after the last step: removes leftovers and checkpoints that need not be kept.
  void finish(const DivergenceDetector& divergence);

  std::int64_t saved() const { return saved_; }
  // Why the last save failed.
  const std::string& failure() const { return failure_; }

 private:
  void retain(std::int64_t verified);

  Parts p_;
  std::int64_t saved_;
  bool diverged_ = false, retain_again_ = false;
  std::string failure_;
};

}  // namespace meshloom::trainer
