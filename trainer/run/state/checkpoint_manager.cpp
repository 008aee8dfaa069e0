#include "trainer/run/state/checkpoint_manager.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshloom::trainer {

void CheckpointManager::observe(const DivergenceDetector& divergence, const RunState& state) {
  if (divergence.diverged() && !diverged_) {
    // These were saved before the losses showed it.
    p_.lock.check();
    std::int64_t newest_healthy = -1;
    for (const std::int64_t step : checkpoint_steps(p_.out)) {
      const std::string path = checkpoint_path(p_.out, step);
      try {
        if (step > divergence.last_good() && step <= state.step) mark_unhealthy(path, divergence.reason());
      } catch (const Error& error) {
        p_.failures.report("marking a checkpoint", error.what());
      }
      if (step <= state.step && unhealthy_reason(path).empty())
        newest_healthy = std::max(newest_healthy, step);
    }
    p_.note(fmt::format(
        "step {}: the run has diverged ({}; {} bad steps in a row). Checkpoints from step {} on are marked "
        "unhealthy; {}",
        state.step, divergence.reason(), divergence.state().bad, divergence.last_good() + 1,
        newest_healthy < 0 ? "there is no healthy checkpoint"
                           : fmt::format("the newest healthy one, of step {}, is kept", newest_healthy)));
  }
  if (diverged_ && !divergence.diverged()) p_.note(fmt::format("step {}: the loss is low again", state.step));
  diverged_ = divergence.diverged();
  if (retain_again_ && divergence.last_verified() >= saved_) {
    p_.lock.check();
    retain(divergence.last_verified());
    retain_again_ = false;
  }
}

bool CheckpointManager::save(const RunState& state, const DivergenceDetector& divergence) {
  if (saved_ == state.step) return true;
  p_.lock.check();
  // The history must be on the disk before the checkpoint that continues it.
  p_.records.sync();
  failure_.clear();
  try {
    save_checkpoint(p_.out, state.step, p_.contents(state, divergence.diverged() ? divergence.reason() : ""),
                    0);
  } catch (const SaveFailed& error) {
    failure_ = error.what();
  }
  p_.failures.report("a checkpoint", failure_);
  if (!failure_.empty()) return false;
  saved_ = state.step;
  retain(divergence.last_verified());
  retain_again_ = true;
  return true;
}

void CheckpointManager::finish(const DivergenceDetector& divergence) {
  retain(divergence.bad() ? divergence.last_verified() : saved_);
  remove_leftovers(p_.out);
}

void CheckpointManager::retain(std::int64_t verified) {
  p_.failures.report("removing an old checkpoint", retain_checkpoints(p_.out, saved_, p_.keep, verified));
}

}  // namespace meshloom::trainer
