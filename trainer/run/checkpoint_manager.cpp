#include "trainer/run/checkpoint_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/run/stored_run.h"

namespace meshloom::trainer {

void CheckpointManager::observe(const DivergenceDetector& health, const RunState& state) {
  if (health.diverged() && !diverged_) {
    // Those that were saved before the losses had said so.
    p_.lock.check();
    std::int64_t newest_healthy = -1;
    for (const std::int64_t step : checkpoint_steps(p_.out)) {
      const std::string path = checkpoint_path(p_.out, step);
      try {
        if (step > health.last_good() && step <= state.step) mark_unhealthy(path, health.reason());
      } catch (const Error& error) {
        p_.trouble.report("marking a checkpoint", error.what());
      }
      if (step <= state.step && unhealthy_reason(path).empty())
        newest_healthy = std::max(newest_healthy, step);
    }
    p_.note(fmt::format(
        "step {}: the run has diverged ({}; {} bad steps in a row). Checkpoints from step {} on are marked "
        "unhealthy; {}",
        state.step, health.reason(), health.state().bad, health.last_good() + 1,
        newest_healthy < 0
            ? "there is no healthy one"
            : fmt::format("the newest healthy one is that of step {} and is kept", newest_healthy)));
  }
  if (diverged_ && !health.diverged())
    p_.note(fmt::format("step {}: the loss is back where it was", state.step));
  diverged_ = health.diverged();
  if (retain_again_ && health.last_proven() >= saved_) {
    p_.lock.check();
    retain(health.last_proven());
    retain_again_ = false;
  }
}

bool CheckpointManager::save(const RunState& state, const DivergenceDetector& health) {
  if (saved_ == state.step) return true;
  p_.lock.check();
  // Before the checkpoint is: the history up to its step is whole.
  p_.trouble.report("metrics.jsonl", p_.metrics.sync());
  p_.trouble.report("the event file", p_.events.sync());
  failure_.clear();
  try {
    save_checkpoint(p_.out, state.step,
                    contents_of(p_.session, p_.recipe, state, health.diverged() ? health.reason() : ""), 0);
  } catch (const SaveFailed& error) {
    failure_ = error.what();
  }
  p_.trouble.report("a checkpoint", failure_);
  if (!failure_.empty()) return false;
  saved_ = state.step;
  retain(health.last_proven());
  retain_again_ = true;
  return true;
}

void CheckpointManager::finish(const DivergenceDetector& health) {
  retain(health.bad() ? health.last_proven() : saved_);
  remove_leftovers(p_.out);
}

void CheckpointManager::retain(std::int64_t proven) {
  p_.trouble.report("removing an old checkpoint", retain_checkpoints(p_.out, saved_, p_.keep, proven));
}

}  // namespace meshloom::trainer
