// The numbers of a run: steps and evaluations on a session, without files or screens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/execute/session.h"
#include "trainer/input/batches.h"
#include "trainer/rules/trainer_config.h"

namespace meshloom::trainer {

struct StepResult {
  double loss = 0;  // nats per token
  double tokens = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  bool applied = false;
  std::optional<double> loss_scale;  // of this step, where the loss is scaled
  std::vector<std::pair<std::string, double>> summaries;  // the model's, by path
};

class Stepper {
 public:
  // `session` holds a training plan of this config; both must outlive the stepper.
  Stepper(const TrainerConfig& config, Session& session, TokenRange train, std::optional<TokenRange> eval);

  // Runs step `step`, counted from 0: the batch is a function of it.
  StepResult step(std::int64_t step);
  // Mean loss per token over evenly spread windows of the evaluation text, always the same ones.
  double evaluate();
  bool can_evaluate() const { return eval_.has_value(); }
  double flops_per_step() const;

 private:
  void submit(const Batch& batch, const std::string& program);
  std::vector<float> read(const std::string& name);

  const TrainerConfig& config_;
  Session& session_;
  Batches batches_;
  std::optional<Batches> eval_;
};

}  // namespace meshloom::trainer
