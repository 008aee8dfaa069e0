// The checkpoints of a run while it trains: what is saved, what is kept, what is marked unhealthy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/config/stored_recipe.h"
#include "trainer/execute/session.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/run/directory_lock.h"
#include "trainer/run/divergence_detector.h"
#include "trainer/run/run_state.h"
#include "trainer/run/failure_reporter.h"

namespace meshloom::trainer {

class CheckpointManager {
 public:
  // All of these must outlive it.
  struct Parts {
    const std::string& out;
    std::int64_t keep;
    Session& session;
    const StoredRecipe& recipe;
    DirectoryLock& lock;
    JsonLines& metrics;
    EventFile& events;
    FailureReporter& trouble;
    const std::function<void(const std::string&)>& note;
  };
  // `saved` is the step that `out` holds a checkpoint of already; -1 = none.
  CheckpointManager(const Parts& parts, std::int64_t saved) : p_(parts), saved_(saved) {}

  // Tells what the step's loss says of the run, marks checkpoints of parameters that it shows to be bad, and removes what
  // need not be kept any more. After every step. Throws LockLost.
  void observe(const DivergenceDetector& health, const RunState& state);
  // Saves `state`, and what was written to the metrics before it. True where the newest checkpoint is of this step. An
  // error of the file system is told (once) and gives false; throws LockLost, and what reading the device throws.
  bool save(const RunState& state, const DivergenceDetector& health);
  // After the last step: removes leftovers, and all that need not be kept. `settled`: nothing will come that could show the
  // newest to be bad.
  void finish(const DivergenceDetector& health);

  std::int64_t saved() const { return saved_; }
  // Why the last save failed.
  const std::string& failure() const { return failure_; }

 private:
  void retain(std::int64_t proven);

  Parts p_;
  std::int64_t saved_;
  bool diverged_ = false, retain_again_ = false;
  std::string failure_;
};

}  // namespace meshloom::trainer
