// Runs train steps and evaluations on a session; it neither reads nor writes files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/data/batches.h"
#include "trainer/execute/session.h"

namespace meshloom::trainer {

// Over islands, of the first one; but the tokens are as many times those of it as there are islands.
struct StepResult {
  double loss = 0;    // nats per token, or the mean loss of preferences
  double tokens = 0;  // that have a target
  double gradient_norm = 0;
  double learning_rate = 0;
  // Where documents are packed: the fraction of the rows' positions that are no padding.
  std::optional<double> packing_efficiency;
  bool applied = false;  // whether the parameters were updated
  // The step was interrupted between micro-batches: nothing was updated, all else here is empty, and no step
  // may follow.
  bool interrupted = false;
  std::optional<double> loss_scale;                       // where the loss is scaled
  std::vector<std::pair<std::string, double>> summaries;  // the model's summaries, by path
  // Where the model writes answers: their mean reward, and a JSON object for each.
  std::optional<double> reward;
  std::vector<std::string> rollouts;
};

struct EvalResult {
  std::optional<double> loss;  // nats per token, or the mean loss of preferences
  std::optional<double>
      reward;  // in its place, where the model writes answers: the mean of those to held-out prompts
  std::vector<std::string> rollouts;  // a JSON object for each of these
};

class StepRunner {
 public:
  // `session` holds a training plan of this config and the values that the first step starts from; both must
  // outlive this object. `eval` may be nullptr.
  StepRunner(const TrainerConfig& config, Session& session, std::unique_ptr<Batches> train,
             std::unique_ptr<Batches> eval);

  // Runs step `step`, counted from 0, which also determines the batch. Throws DeviceLost when the device's
  // own count of updates has not grown by one (or has changed, where the step was skipped).
  StepResult step(std::int64_t step);
  // Over rows, or prompts, that are spread evenly over the evaluation data and are the same every time. Empty when it was
  // interrupted.
  std::optional<EvalResult> evaluate();
  // `asked` is called between micro-batches, between the batches of an evaluation and while answers are written; true interrupts them.
  void interrupt_when(std::function<bool()> asked) { interrupted_ = std::move(asked); }
  // True from the submission of an update until its results have been read. After an exception in between,
  // nobody knows whether the parameters have changed.
  bool updating() const { return updating_; }
  bool can_evaluate() const { return eval_ || batches_->can_evaluate(); }
  // Called before a step, with its number, and before an evaluation, with -1: other ranks must do the same.
  void announce(std::function<void(std::int64_t step)> announced) { announced_ = std::move(announced); }
  double flops_per_step() const;

 private:
  // Writes this rank's rows of the batch, which begins with row `first` of the step, for a program that reads one.
  void feed(const Batch& batch, const StepAction& run, std::int64_t step, std::int64_t first);
  // Runs the program, or moves values to or from another rank.
  void carry_out(const StepAction& action);
  std::vector<float> read(const std::string& name);
  void count_update(std::int64_t step, bool applied, double counted);

  const TrainerConfig& config_;
  Session& session_;
  std::unique_ptr<Batches> batches_, eval_;
  std::function<bool()> interrupted_ = [] { return false; };
  std::function<void(std::int64_t)> announced_ = [](std::int64_t) {};
  double updates_ = 0;  // the device's count
  bool updating_ = false;
};

}  // namespace meshloom::trainer
