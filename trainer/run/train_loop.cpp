#include "trainer/run/train_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

// After so many skipped steps in a row, waiting longer is pointless.
constexpr int kMaxSkipped = 50;

// Copying takes at most this part of the time.
constexpr double kCopying = 0.05;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void TrainLoop::run(OnDevice& on) {
  p_.result.step = p_.state.step;
  p_.result.stopped = p_.stop.requested();
  while (p_.state.step < p_.config.steps && !p_.result.stopped) {
    const auto begin = Clock::now();
    StepResult step;
    {
      const StopDeadline::Waiting waiting(p_.deadline);
      step = on.steps->step(p_.state.step);
    }
    p_.result.stopped = p_.stop.requested();
    // Copying what is saved may take longer than a request waits for a step.
    if (p_.result.stopped) p_.deadline.extend(StopDeadline::kSeconds + 3 * copying_);
    if (step.interrupted) return;  // the step is dropped
    const double seconds = seconds_since(begin);
    ++p_.state.step;
    p_.state.tokens_seen += static_cast<std::int64_t>(step.tokens);
    StepRecord done = record_of(step, seconds);
    done.peak_bytes = on.session->device().peak_bytes();
    {
      const StopDeadline::Waiting waiting(p_.deadline);  // it may measure on the device
      done.mfu = on.ceiling->utilization(on.steps->flops_per_step(), seconds);
    }
    observe_loss(done);
    const bool repeated = p_.state.step <= recorded_;
    if (repeated) {
      compare(done);
    } else {
      record(on, done, step);
      check_skipped(step);
    }
    const double interval = std::max(p_.config.snapshot_seconds, copying_ / kCopying);
    if (p_.snapshots && seconds_since(copied_) >= interval) take_snapshot(on);
    if (!is_last() && !p_.result.stopped && p_.config.checkpoint_every > 0 &&
        p_.state.step % p_.config.checkpoint_every == 0 && p_.checkpoints.saved() < p_.state.step &&
        p_.checkpoints.save(p_.state, p_.divergence) && !p_.snapshots)
      losses_.clear();
    if (!repeated) show_sample(on);
  }
}

void TrainLoop::take_snapshot(OnDevice& on) {
  if (!p_.snapshots || p_.snapshots->has(p_.state.step)) return;
  const auto begin = Clock::now();
  {
    const StopDeadline::Waiting waiting(p_.deadline);
    p_.snapshots->read(*on.session);
  }
  p_.snapshots->commit({p_.state, p_.divergence, p_.result.loss});
  losses_.erase(losses_.begin(), losses_.upper_bound(p_.state.step));
  copying_ = seconds_since(begin);
  copied_ = Clock::now();
}

StepRecord TrainLoop::record_of(const StepResult& step, double seconds) const {
  StepRecord record;
  record.step = p_.state.step;
  record.loss = step.loss;
  record.reward = step.reward;
  record.learning_rate = step.learning_rate;
  record.gradient_norm = step.gradient_norm;
  record.summaries = step.summaries;
  record.packing_efficiency = step.packing_efficiency;
  record.skipped = !step.applied;
  record.loss_scale = step.loss_scale;
  record.tokens = static_cast<std::int64_t>(step.tokens);
  record.seconds = seconds;
  record.tokens_per_s = step.tokens / seconds;
  return record;
}

void TrainLoop::observe_loss(const StepRecord& record) {
  // What learns from rewards has a loss around 0 that goes up and down with them: only one that is not finite says something.
  const double loss = record.reward && std::isfinite(record.loss) ? 0 : record.loss;
  if (record.tokens > 0)
    p_.divergence.add({loss, record.skipped, record.loss_scale});
  else
    p_.divergence.add_empty();
  p_.state.health = p_.divergence.state();
  p_.result.step = p_.state.step;
  p_.result.loss = record.loss;
  p_.result.reward = record.reward;
}

// Evaluates where that is due, and writes the record of the step. An evaluation that fails ends the run after the step itself
// was recorded; one that loses the device is repeated with its step.
void TrainLoop::record(OnDevice& on, StepRecord& record, const StepResult& step) {
  const bool due = p_.config.eval_every > 0 && p_.state.step % p_.config.eval_every == 0;
  std::optional<EvalResult> evaluated;
  std::exception_ptr failed;
  try {
    if (on.steps->can_evaluate() && (due || is_last()) && !p_.result.stopped) {
      const StopDeadline::Waiting waiting(p_.deadline);
      evaluated = on.steps->evaluate();
    }
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (...) {
    failed = std::current_exception();
  }
  p_.result.stopped = p_.result.stopped || p_.stop.requested();
  if (!evaluated) evaluated.emplace();
  record.eval_loss = evaluated->loss;
  record.eval_reward = evaluated->reward;
  record.device_losses = p_.recovery.take_count();
  p_.records.add(record, step.rollouts, evaluated->rollouts);
  recorded_ = record.step;
  losses_[record.step] = record.loss;
  if (failed) std::rethrow_exception(failed);
  if (p_.progress) p_.progress->step(record);
  if (record.eval_loss) p_.result.eval_loss = record.eval_loss;
  if (record.eval_reward) p_.result.eval_reward = record.eval_reward;
}

// A step that is repeated gives the same bits, unless the device computed wrongly one of the two times.
void TrainLoop::compare(const StepRecord& record) const {
  const auto first = losses_.find(record.step);
  if (first == losses_.end() || std::memcmp(&first->second, &record.loss, sizeof record.loss) == 0) return;
  p_.note(
      fmt::format("step {}: its loss was {:.17g} before the device was lost and is {:.17g} now: one of the "
                  "two was computed wrongly",
                  record.step, first->second, record.loss));
}

// Throws Error after too many skipped steps in a row.
void TrainLoop::check_skipped(const StepResult& step) {
  skipped_ = step.applied ? 0 : skipped_ + 1;
  if (!step.applied)
    p_.note(fmt::format("step {}: {}; the update was skipped", p_.state.step,
                        step.tokens > 0
                            ? fmt::format("the gradient is not finite (norm {})", step.gradient_norm)
                            : "no token had a target"));
  p_.checkpoints.observe(p_.divergence, p_.state);
  if (skipped_ < kMaxSkipped) return;
  const std::string where = fmt::format("step {}", p_.state.step);
  if (step.tokens == 0)
    throw Error(where, "tokens must have targets",
                fmt::format("none in this step, and {} skipped steps in a row", skipped_));
  throw Error(
      where, "gradients must become finite again",
      fmt::format("{} skipped steps in a row; a lower learning rate or more warm-up may help", skipped_));
}

// Shows a sample where that is due.
void TrainLoop::show_sample(OnDevice& on) {
  if (!p_.progress || !on.sample || is_last() || p_.result.stopped) return;
  if (seconds_since(sampled_) < p_.sample_every) return;
  sampled_ = Clock::now();  // a sample that loses the device is not tried again at once
  std::string text;
  {
    const StopDeadline::Waiting waiting(p_.deadline);
    text = on.sample();
  }
  p_.progress->say(fmt::format("\nstep {}, {}\n", p_.state.step, text));
  sampled_ = Clock::now();
}

}  // namespace meshloom::trainer
