// Answers to prompts that the model of a run writes with the parameters that it has at each step, and what they teach it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hal/transport/transport.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/execute/session.h"
#include "trainer/rollout/completion_writer.h"
#include "trainer/rollout/reward_program.h"

namespace meshloom::trainer {

// By how much each reward is better than the mean of its group, of `group` rewards one after another; with `scale` divided by the standard
// deviation of the group.
std::vector<double> group_advantages(const std::vector<double>& rewards, std::size_t group, bool scale);

// A generation is the answers for input.steps_per_generation steps, written together with the parameters in front of the first; these steps
// are done input.num_iterations times, and each has an answer in each row. An evaluation has one answer to each held-out prompt. What a
// step has is a function of its number, the seed and the parameters that its generation was written with: a run that is resumed gets the
// same, if its program gives the same rewards. Every rank has all rows of a step. Only rank 0 asks the program, and has reports.
class RolloutRows : public Batches {
 public:
  // The session holds the run's parameters. All of these must outlive it. The config's input has prompts, and so has `data`; the
  // batch is a multiple of the answers to a prompt. `reward` is nullptr on other ranks than 0; `transport` where there is one rank.
  // `record` is the file of the run's answers (rollout_lines.h), from which a generation is read that was written before this object was made.
  RolloutRows(const TrainerConfig& config, const Dataset& data, const Tokenizer& tokenizer, Session& session,
              RewardProgram* reward, hal::Transport* transport, std::string record);

  std::int64_t rows_per_epoch() const override { return data_.examples() * group_; }
  bool prepare(std::int64_t step, const std::function<bool()>& interrupted) override;
  Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const override;
  const Report& report() const override { return report_; }
  bool can_evaluate() const override { return data_.eval_prompts() > 0 && config_.eval_batches > 0; }
  std::optional<Report> evaluate(const std::function<bool()>& interrupted) override;

 private:
  // Answers, and what the program says of them.
  struct Rewarded {
    std::vector<CompletionRequest> requests;
    std::vector<Completion> completions;
    std::vector<std::string> lines;           // what the program read; on rank 0
    std::vector<double> rewards, advantages;  // the latter where something is learned from them
    double seconds = 0, reward_seconds = 0;
  };
  std::int64_t generation_steps() const { return input_.steps_per_generation * input_.num_iterations; }
  std::size_t part() const;
  std::int64_t prompt_at(std::int64_t place) const;
  std::vector<CompletionRequest> requests_of(std::int64_t first) const;
  std::optional<Rewarded> write(std::vector<CompletionRequest> requests, std::size_t group,
                                const std::function<bool()>& interrupted);
  Rewarded recorded(std::int64_t first) const;
  std::vector<double> rewards_of(const std::vector<std::string>& lines,
                                 const std::function<bool()>& interrupted);
  void make_batch();
  Report report_of_part(bool written) const;
  std::vector<std::string> recorded_lines(const Rewarded& answers) const;

  const TrainerConfig& config_;
  const JsonlPromptsConfig& input_;
  const Dataset& data_;
  const Tokenizer& tokenizer_;
  RewardProgram* reward_;
  hal::Transport* transport_;
  std::string record_;
  std::int64_t group_;
  CompletionWriter writer_;
  std::int64_t first_ = -1;  // the first step of the generation
  Rewarded generation_;
  Batch batch_;             // of all its steps
  std::int64_t step_ = -1;  // that was prepared
  Report report_;
};

}  // namespace meshloom::trainer
