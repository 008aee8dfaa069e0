#include "trainer/run/stepper.h"

#include <algorithm>
#include <span>

#include "hal/error.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {
namespace {

constexpr std::int32_t kIgnored = -1;

double entry(const std::vector<float>& metrics, Metric metric) { return metrics.at(static_cast<std::size_t>(metric)); }

}  // namespace

Stepper::Stepper(const TrainerConfig& config, Session& session, TokenRange train, std::optional<TokenRange> eval)
    : config_(config),
      session_(session),
      batches_(train, config.batch, config.sequence, static_cast<std::uint64_t>(config.seed), config.input->shuffle) {
  if (eval && eval->size() > config.sequence && session.plan().programs.count("eval"))
    eval_.emplace(*eval, 1, config.sequence, 0, false);
}

void Stepper::submit(const Batch& batch, const std::string& program) {
  session_.write("tokens", std::as_bytes(std::span(batch.tokens)));
  session_.write("targets", std::as_bytes(std::span(batch.targets)));
  session_.run(program);
}

std::vector<float> Stepper::read(const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(session_.plan().persistent_types.at(name).elements()));
  session_.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

StepResult Stepper::step(std::int64_t step) {
  StepResult result;
  result.learning_rate = config_.learner->learning_rate(step + 1);
  const float rate = static_cast<float>(result.learning_rate);
  session_.write("lr", std::as_bytes(std::span(&rate, 1)));
  if (config_.accumulation == 1) {
    submit(batches_.rows(step, 0, config_.batch), "train");
  } else {
    const std::int64_t rows = config_.batch / config_.accumulation;
    for (std::int64_t i = 0; i < config_.accumulation; ++i) submit(batches_.rows(step, i * rows, rows), "accumulate");
    session_.run("apply");
  }
  const std::vector<float> metrics = read("metrics");
  result.tokens = entry(metrics, Metric::token_count);
  result.loss = entry(metrics, Metric::loss_sum) / std::max(result.tokens, 1.0);
  result.gradient_norm = entry(metrics, Metric::gradient_norm);
  result.applied = entry(metrics, Metric::applied) != 0;
  const std::vector<std::string>& names = session_.plan().metrics.at("metrics");
  for (std::size_t i = static_cast<std::size_t>(Metric::step) + 1; i < names.size(); ++i)
    if (names[i] == "loss_scale")
      result.loss_scale = metrics.at(i);
    else
      result.summaries.emplace_back(names[i], metrics.at(i));
  return result;
}

double Stepper::evaluate() {
  const std::int64_t rows = config_.batch / config_.accumulation;
  const std::int64_t windows = std::min(eval_->windows(), config_.eval_batches * config_.batch);
  double sum = 0, tokens = 0;
  for (std::int64_t first = 0; first < windows; first += rows) {
    Batch batch;
    for (std::int64_t row = first; row < first + rows; ++row) {
      Batch one = eval_->rows(std::min(row, windows - 1) * eval_->windows() / windows, 0, 1);
      if (row >= windows) std::fill(one.targets.begin(), one.targets.end(), kIgnored);
      batch.tokens.insert(batch.tokens.end(), one.tokens.begin(), one.tokens.end());
      batch.targets.insert(batch.targets.end(), one.targets.begin(), one.targets.end());
    }
    submit(batch, "eval");
    const std::vector<float> metrics = read("eval/metrics");
    sum += entry(metrics, Metric::loss_sum);
    tokens += entry(metrics, Metric::token_count);
  }
  return sum / std::max(tokens, 1.0);
}

double Stepper::flops_per_step() const {
  const Plan& plan = session_.plan();
  if (config_.accumulation == 1) return plan.flops("train");
  return static_cast<double>(config_.accumulation) * plan.flops("accumulate") + plan.flops("apply");
}

}  // namespace meshloom::trainer
