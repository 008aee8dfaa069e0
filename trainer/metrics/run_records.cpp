#include "trainer/metrics/run_records.h"

#include <fmt/format.h>

#include <utility>

namespace meshloom::trainer {
namespace {

constexpr const char* kEvents = "the event file";

std::vector<std::pair<std::string, float>> scalars_of(const StepRecord& record) {
  std::vector<std::pair<std::string, float>> scalars;
  const auto add = [&](const std::string& name, double value) {
    scalars.emplace_back(name, static_cast<float>(value));
  };
  const auto add_if = [&](const std::string& name, const std::optional<double>& value) {
    if (value) add(name, *value);
  };
  add("loss/train", record.loss);
  add("learning_rate", record.learning_rate);
  add("gradient_norm", record.gradient_norm);
  add("speed/tokens_per_s", record.tokens_per_s);
  add("speed/mfu", record.mfu);
  add_if("reward/train", record.reward);
  add_if("input/packing_efficiency", record.packing_efficiency);
  add_if("loss/scale", record.loss_scale);
  if (record.device_losses > 0) add("device/losses", record.device_losses);
  for (const auto& [name, value] : record.summaries) add(name, value);
  add_if("loss/eval", record.eval_loss);
  add_if("reward/eval", record.eval_reward);
  return scalars;
}

}  // namespace

RunRecords::RunRecords(const std::string& directory, std::int64_t resumed, Kinds kinds,
                       FailureReporter& failures)
    : failures_(failures), events_(directory, resumed) {
  const auto open = [&](std::optional<Lines>& lines, const std::string& name) {
    lines.emplace(Lines{name, JsonLines(directory + "/" + name, resumed)});
  };
  open(metrics_, "metrics.jsonl");
  if (kinds.rollouts) open(rollouts_, kRolloutLines);
  if (kinds.eval_rollouts) open(eval_rollouts_, "eval_rollouts.jsonl");
}

void RunRecords::add_lines(std::optional<Lines>& lines, const std::vector<std::string>& added) {
  for (const std::string& line : added) failures_.report(lines->name, lines->file.add(line));
}

void RunRecords::add(const StepRecord& record, const std::vector<std::string>& rollouts,
                     const std::vector<std::string>& eval_rollouts) {
  add_lines(metrics_, {to_json(record)});
  add_lines(rollouts_, rollouts);
  add_lines(eval_rollouts_, eval_rollouts);
  failures_.report(kEvents, events_.add(record.step, scalars_of(record)));
}

void RunRecords::sync() {
  for (auto* lines : {&metrics_, &rollouts_, &eval_rollouts_})
    if (*lines) failures_.report((*lines)->name, (*lines)->file.sync());
  failures_.report(kEvents, events_.sync());
}

void RunRecords::note_lost(const std::function<void(const std::string&)>& note) const {
  const auto check = [&](const std::string& name) {
    if (failures_.has(name)) note(fmt::format("{}: what could not be written is lost", name));
  };
  for (const auto* lines : {&metrics_, &rollouts_, &eval_rollouts_})
    if (*lines) check((*lines)->name);
  check(kEvents);
}

}  // namespace meshloom::trainer
