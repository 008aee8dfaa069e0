#include "trainer/rollout/rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "hal/error.h"
#include "kernels/core/philox.h"
#include "layers/models/trace.h"
#include "trainer/execute/exchange.h"
#include "trainer/execute/gather_texts.h"
#include "trainer/rollout/rollout_lines.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::int32_t kIgnored = -1;
// Added to standard deviations, as in TRL.
constexpr double kStdEpsilon = 1e-4;

// In place of a step's number.
constexpr std::int64_t kEvaluation = -1;

std::uint64_t seed_of(std::uint64_t seed, std::int64_t step, std::int64_t row) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto wide = static_cast<std::uint64_t>(step);
  const kernels::PhiloxWords words = kernels::philox(
      {{low(wide), low(wide >> 32), low(static_cast<std::uint64_t>(row)), 0}}, low(seed), low(seed >> 32));
  return std::uint64_t{words.v[0]} << 32 | words.v[1];
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of a sample.
double standard_deviation(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace

std::vector<double> group_advantages(const std::vector<double>& rewards, std::size_t group, bool scale) {
  std::vector<double> advantages;
  for (std::size_t first = 0; first < rewards.size(); first += group) {
    const std::span<const double> of_group = std::span(rewards).subspan(first, group);
    const double mean = mean_of(of_group), divisor = scale ? standard_deviation(of_group) + kStdEpsilon : 1;
    for (const double reward : of_group) advantages.push_back((reward - mean) / divisor);
  }
  return advantages;
}

RolloutRows::RolloutRows(const TrainerConfig& config, const Dataset& data, const Tokenizer& tokenizer,
                         Session& session, RewardProgram* reward, hal::Transport* transport,
                         std::string record)
    : config_(config),
      input_(*config.input->prompts()),
      data_(data),
      tokenizer_(tokenizer),
      reward_(reward),
      transport_(transport),
      record_(std::move(record)),
      group_(input_.completions_per_prompt),
      writer_(config, data, tokenizer, session, transport) {}

// By the number of prompts before it, of all epochs.
std::int64_t RolloutRows::prompt_at(std::int64_t place) const {
  const std::int64_t count = data_.examples();
  if (!input_.shuffle) return place % count;
  return static_cast<std::int64_t>(
      permute_index(static_cast<std::uint64_t>(place % count), static_cast<std::uint64_t>(count),
                    static_cast<std::uint64_t>(config_.seed), static_cast<std::uint64_t>(place / count)));
}

// Of the generation whose first step this is.
std::vector<CompletionRequest> RolloutRows::requests_of(std::int64_t first) const {
  // As the model gives it: the gradient is one of what was drawn by the probabilities themselves.
  constexpr double kTemperature = 1;
  const std::int64_t size = input_.steps_per_generation * config_.batch,
                     begin = first / generation_steps() * (size / group_);
  std::vector<CompletionRequest> requests;
  for (std::int64_t row = 0; row < size; ++row)
    requests.push_back({prompt_at(begin + row / group_),
                        seed_of(static_cast<std::uint64_t>(config_.seed), first, row), kTemperature});
  return requests;
}

// Rank 0 asks the program and tells the others. Empty where it was interrupted, and on other ranks where the program failed, so that
// they are ready for what rank 0 does next.
std::vector<double> RolloutRows::rewards_of(const std::vector<std::string>& lines,
                                            const std::function<bool()>& interrupted) {
  if (!transport_) return reward_->rewards(lines, interrupted);
  std::vector<double> rewards;
  std::exception_ptr failed;
  if (reward_) try {
      rewards = reward_->rewards(lines, interrupted);
    } catch (const Error&) {
      failed = std::current_exception();
    }
  // The program may be slow.
  const std::string told = gather_texts(*transport_, OrderedJson(rewards).dump(), kForever).front();
  if (failed) std::rethrow_exception(failed);
  return OrderedJson::parse(told).get<std::vector<double>>();
}

// Each `group` requests that follow one another have the same prompt. Empty = interrupted, or a rank failed.
std::optional<RolloutRows::Rewarded> RolloutRows::write(std::vector<CompletionRequest> requests,
                                                        std::size_t group,
                                                        const std::function<bool()>& interrupted) {
  Rewarded answers;
  answers.requests = std::move(requests);
  const auto begin = Clock::now();
  answers.completions = writer_.write(answers.requests, group, interrupted);
  if (answers.completions.empty()) return std::nullopt;
  const auto written = Clock::now();
  if (reward_)
    for (std::size_t i = 0; i < answers.requests.size(); ++i)
      answers.lines.push_back(
          rollout_line(data_.line(answers.requests[i].prompt), answers.completions[i], tokenizer_));
  answers.rewards = rewards_of(answers.lines, interrupted);
  if (answers.rewards.empty()) return std::nullopt;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  answers.seconds = seconds(written - begin);
  answers.reward_seconds = seconds(Clock::now() - written);
  return answers;
}

// The generation as it was written when the run was at its first step.
RolloutRows::Rewarded RolloutRows::recorded(std::int64_t first) const {
  const std::vector<RecordedRollout> rollouts = read_rollouts(record_, first + 1);
  Rewarded answers;
  answers.requests = requests_of(first);
  const std::string where = fmt::format("'{}', step {}", record_, first + 1);
  if (rollouts.size() != answers.requests.size())
    throw Error(where,
                fmt::format("must have the {} answers that later steps learn from", answers.requests.size()),
                std::to_string(rollouts.size()));
  for (std::size_t i = 0; i < rollouts.size(); ++i) {
    const std::int64_t prompt = answers.requests[i].prompt;
    if (OrderedJson::parse(rollouts[i].prompt) != OrderedJson::parse(data_.line(prompt)))
      throw Error(where, "must have answers to the prompts of the data", rollouts[i].prompt);
    const std::vector<std::int32_t>& ids = rollouts[i].completion.ids;
    if (const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
        *least < 0 || *most >= layers::vocabulary(*config_.model))
      throw Error(where, "must have tokens of the model's vocabulary",
                  std::to_string(*least < 0 ? *least : *most));
    if (const auto tokens = static_cast<std::int64_t>(data_.example(prompt).tokens.size() + ids.size());
        tokens > config_.sequence)
      throw Error(where, fmt::format("must have answers that fit a row of {} tokens", config_.sequence),
                  std::to_string(tokens));
    answers.completions.push_back(rollouts[i].completion);
    answers.rewards.push_back(rollouts[i].reward);
  }
  return answers;
}

void RolloutRows::make_batch() {
  const std::size_t size = generation_.completions.size() * static_cast<std::size_t>(config_.sequence);
  batch_ = {};
  for (auto* ids : {&batch_.tokens, &batch_.segments, &batch_.positions}) ids->assign(size, 0);
  batch_.targets.assign(size, kIgnored);
  for (auto* values : {&batch_.advantages, &batch_.old_logprobs}) values->assign(size, 0);
  std::vector<std::int32_t> prompt;
  for (std::size_t row = 0; row < generation_.completions.size(); ++row) {
    const Completion& completion = generation_.completions[row];
    if (row % static_cast<std::size_t>(group_) == 0)
      prompt = data_.example(generation_.requests[row].prompt).tokens;
    const std::size_t given = prompt.size(), all = given + completion.ids.size();
    const auto token = [&](std::size_t i) { return i < given ? prompt[i] : completion.ids[i - given]; };
    const bool trains = !(input_.mask_truncated && completion.truncated);
    for (std::size_t i = 0; i + 1 < all; ++i) {
      const std::size_t at = row * static_cast<std::size_t>(config_.sequence) + i;
      batch_.tokens[at] = token(i);
      batch_.segments[at] = 1;
      batch_.positions[at] = static_cast<std::int32_t>(i);
      if (i + 1 < given || !trains) continue;
      batch_.targets[at] = token(i + 1);
      batch_.advantages[at] = static_cast<float>(generation_.advantages[row]);
      batch_.old_logprobs[at] = completion.logprobs[i + 1 - given];
    }
  }
}

std::vector<std::string> RolloutRows::recorded_lines(const Rewarded& answers) const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < answers.lines.size(); ++i) {
    RolloutScore score{.reward = answers.rewards[i]};
    if (!answers.advantages.empty()) {
      score.advantage = answers.advantages[i];
      // A run that is resumed between two steps of a generation needs them.
      if (generation_steps() > 1) score.logprobs = &answers.completions[i].logprobs;
    }
    lines.push_back(recorded_line(step_ + 1, answers.lines[i], score));
  }
  return lines;
}

// Of the answers that the step learns from; with all lines of the generation where it was written in this step.
Batches::Report RolloutRows::report_of_part(bool written) const {
  const auto size = static_cast<std::size_t>(config_.batch), group = static_cast<std::size_t>(group_);
  const std::size_t first = part() * size;
  const std::span<const double> rewards = std::span(generation_.rewards).subspan(first, size);
  const double groups = static_cast<double>(size / group);
  double deviations = 0, equal = 0, tokens = 0, truncated = 0;
  for (std::size_t i = 0; i < size; i += group) {
    const double deviation = standard_deviation(rewards.subspan(i, group));
    deviations += deviation / groups;
    equal += (deviation == 0 ? 1 : 0) / groups;
  }
  for (const Completion& completion : std::span(generation_.completions).subspan(first, size)) {
    tokens += static_cast<double>(completion.ids.size()) / static_cast<double>(size);
    truncated += (completion.truncated ? 1 : 0) / static_cast<double>(size);
  }
  Report report{mean_of(rewards),
                {{"rollout/reward_std", deviations},
                 {"rollout/equal_rewards", equal},
                 {"rollout/completion_tokens", tokens},
                 {"rollout/truncated", truncated}},
                {}};
  if (!written) return report;
  report.values.emplace_back("rollout/seconds", generation_.seconds);
  report.values.emplace_back("rollout/reward_seconds", generation_.reward_seconds);
  report.lines = recorded_lines(generation_);
  return report;
}

bool RolloutRows::prepare(std::int64_t step, const std::function<bool()>& interrupted) {
  step_ = -1;
  const std::int64_t first = step - step % generation_steps();
  if (first_ != first) {
    first_ = -1;
    const auto group = static_cast<std::size_t>(group_);
    std::optional<Rewarded> answers =
        step == first ? write(requests_of(first), group, interrupted) : recorded(first);
    if (!answers) return false;
    generation_ = *std::move(answers);
    generation_.advantages = group_advantages(generation_.rewards, group, input_.scale_advantages);
    make_batch();
    first_ = first;
  }
  step_ = step;
  if (reward_) report_ = report_of_part(step == first);
  return true;
}

std::optional<Batches::Report> RolloutRows::evaluate(const std::function<bool()>& interrupted) {
  const std::int64_t held = data_.eval_prompts(),
                     count = std::min(held, config_.eval_batches * config_.batch);
  std::vector<CompletionRequest> requests;
  for (std::int64_t i = 0; i < count; ++i)
    requests.push_back({data_.examples() + i * held / count,
                        seed_of(static_cast<std::uint64_t>(config_.seed), kEvaluation, i),
                        input_.eval_temperature});
  const std::optional<Rewarded> answers = write(std::move(requests), 1, interrupted);
  if (!answers) return std::nullopt;
  return Report{mean_of(answers->rewards), {}, recorded_lines(*answers)};
}

// Of the steps that the generation is for, the one whose rows this step has.
std::size_t RolloutRows::part() const {
  return static_cast<std::size_t>((step_ - first_) % input_.steps_per_generation);
}

Batch RolloutRows::rows(std::int64_t step, std::int64_t first, std::int64_t rows) const {
  if (step != step_)
    throw Error("rollouts", "the rows of a step must be prepared first", std::to_string(step));
  Batch batch;
  const auto take = [&](const auto& from) {
    const auto begin =
        from.begin() + (static_cast<std::int64_t>(part()) * config_.batch + first) * config_.sequence;
    return std::decay_t<decltype(from)>(begin, begin + rows * config_.sequence);
  };
  batch.tokens = take(batch_.tokens);
  batch.targets = take(batch_.targets);
  batch.segments = take(batch_.segments);
  batch.positions = take(batch_.positions);
  batch.advantages = take(batch_.advantages);
  batch.old_logprobs = take(batch_.old_logprobs);
  return batch;
}

}  // namespace meshloom::trainer
