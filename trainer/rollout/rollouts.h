// Answers to prompts that the model of a run writes with the parameters that it has at each step, and what they teach it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/execute/session.h"
#include "trainer/inference/engine.h"
#include "trainer/rollout/reward_program.h"

namespace meshloom::trainer {

// The engine that writes the answers. Its programs must be part of the run's plan (decode_options()).
EngineOptions rollout_engine_options(const TrainerConfig& config);

// By how much each reward is better than the mean of its group, of `group` rewards one after another; with `scale` divided by the standard
// deviation of the group.
std::vector<double> group_advantages(const std::vector<double>& rewards, std::size_t group, bool scale);

// A step has an answer in each row, and as many answers to each of its prompts as the input says. What a step has is a function of its
// number, the seed and the parameters: a run that is resumed gets the same, if its program gives the same rewards.
class RolloutRows : public Batches {
 public:
  // The session holds the run's parameters. All of these must outlive it. The config's input has prompts, and so has `data`; the
  // batch is a multiple of the answers to a prompt.
  RolloutRows(const TrainerConfig& config, const Dataset& data, const Tokenizer& tokenizer, Session& session,
              RewardProgram& reward);

  std::int64_t rows_per_epoch() const override { return data_.examples() * group_; }
  bool prepare(std::int64_t step, const std::function<bool()>& interrupted) override;
  Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const override;
  const Report& report() const override { return report_; }

 private:
  class Answer;
  std::int64_t prompt_of(std::int64_t step, std::int64_t row) const;
  void submit(std::int64_t step, std::size_t row);
  bool write_answers(std::int64_t step, const std::function<bool()>& interrupted);
  std::string line_of(std::size_t row) const;
  void make_batch(const std::vector<double>& advantages);
  void make_report(std::int64_t step, const std::vector<std::string>& lines,
                   const std::vector<double>& rewards, const std::vector<double>& advantages);

  const TrainerConfig& config_;
  const JsonlPromptsConfig& input_;
  const Dataset& data_;
  const Tokenizer& tokenizer_;
  RewardProgram& reward_;
  std::int64_t group_;
  std::vector<std::int32_t> ends_;
  Engine engine_;
  std::int64_t step_ = -1;                        // that was prepared
  std::vector<std::shared_ptr<Answer>> answers_;  // by row
  Batch batch_;
  Report report_;
};

}  // namespace meshloom::trainer
