// The numbers of a run: steps and evaluations on a session, without files or screens.
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

struct StepResult {
  double loss = 0;  // nats per token
  double tokens = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  std::optional<double>
      fill;  // of the positions of its rows, the part that is no padding; where documents are packed
  bool applied = false;
  bool interrupted =
      false;  // between micro-batches: nothing was updated, the rest of this is empty, and no step may follow
  std::optional<double> loss_scale;                       // of this step, where the loss is scaled
  std::vector<std::pair<std::string, double>> summaries;  // the model's, by path
};

class StepRunner {
 public:
  // `session` holds a training plan of this config, with the values that the first step starts from; both must outlive the
  // stepper. `eval` may be nullptr.
  StepRunner(const TrainerConfig& config, Session& session, std::unique_ptr<Batches> train,
          std::unique_ptr<Batches> eval);

  // Runs step `step`, counted from 0: the batch is a function of it. Throws DeviceLost where the device's own count of
  // updates did not move by one (or stand still, where the step was skipped).
  StepResult step(std::int64_t step);
  // Mean loss per token over evenly spread rows of the evaluation data, always the same ones. Nothing where it was
  // interrupted.
  std::optional<double> evaluate();
  // Asked between micro-batches and between batches of an evaluation; true interrupts.
  void interrupt_when(std::function<bool()> asked) { interrupted_ = std::move(asked); }
  // From the submission of an update until its results were read: an exception that comes meanwhile leaves parameters of
  // which nobody knows whether they have moved.
  bool updating() const { return updating_; }
  bool can_evaluate() const { return eval_ != nullptr; }
  double flops_per_step() const;

 private:
  // Rows from `first` of the step's on.
  void submit(const Batch& batch, const std::string& program, std::int64_t step, std::int64_t first);
  std::vector<float> read(const std::string& name);
  void count_update(std::int64_t step, bool applied, double counted);

  const TrainerConfig& config_;
  Session& session_;
  std::unique_ptr<Batches> batches_, eval_;
  std::function<bool()> interrupted_ = [] { return false; };
  double updates_ = 0;  // that the device has counted
  bool updating_ = false;
};

}  // namespace meshloom::trainer
