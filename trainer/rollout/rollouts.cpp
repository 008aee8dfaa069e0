#include "trainer/rollout/rollouts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "hal/error.h"
#include "kernels/core/philox.h"
#include "trainer/execute/exchange.h"
#include "trainer/execute/gather_texts.h"

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
                         Session& session, RewardProgram* reward, hal::Transport* transport)
    : config_(config),
      input_(*config.input->prompts()),
      data_(data),
      tokenizer_(tokenizer),
      reward_(reward),
      transport_(transport),
      group_(input_.completions_per_prompt),
      writer_(config, data, tokenizer, session, transport) {}

std::int64_t RolloutRows::prompt_of(std::int64_t step, std::int64_t row) const {
  const std::int64_t at = step * (config_.batch / group_) + row / group_, count = data_.examples();
  if (!input_.shuffle) return at % count;
  return static_cast<std::int64_t>(
      permute_index(static_cast<std::uint64_t>(at % count), static_cast<std::uint64_t>(count),
                    static_cast<std::uint64_t>(config_.seed), static_cast<std::uint64_t>(at / count)));
}

// What the program reads of an answer.
std::string RolloutRows::line_of(const CompletionRequest& request, const Completion& completion) const {
  std::span<const std::int32_t> text = completion.ids;
  if (!completion.truncated) text = text.first(text.size() - 1);
  const OrderedJson json{
      {"example", OrderedJson::parse(data_.line(request.prompt))},
      {"completion", tokenizer_.decode(text)},
      {"completion_ids", completion.ids},
      {"finish_reason", to_string(completion.truncated ? FinishReason::length : FinishReason::stop)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
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

// `group` requests after another have the same prompt. Empty = interrupted, or a rank failed.
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
      answers.lines.push_back(line_of(answers.requests[i], answers.completions[i]));
  answers.rewards = rewards_of(answers.lines, interrupted);
  if (answers.rewards.empty()) return std::nullopt;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  answers.seconds = seconds(written - begin);
  answers.reward_seconds = seconds(Clock::now() - written);
  return answers;
}

void RolloutRows::make_batch(const Rewarded& answers, const std::vector<double>& advantages) {
  const auto size = static_cast<std::size_t>(config_.batch * config_.sequence);
  batch_ = {};
  for (auto* ids : {&batch_.tokens, &batch_.segments, &batch_.positions}) ids->assign(size, 0);
  batch_.targets.assign(size, kIgnored);
  for (auto* values : {&batch_.advantages, &batch_.old_logprobs}) values->assign(size, 0);
  for (std::size_t row = 0; row < answers.completions.size(); ++row) {
    const Completion& completion = answers.completions[row];
    const std::vector<std::int32_t> prompt = data_.example(answers.requests[row].prompt).tokens;
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
      batch_.advantages[at] = static_cast<float>(advantages[row]);
      batch_.old_logprobs[at] = completion.logprobs[i + 1 - given];
    }
  }
}

// `advantages` is nullptr where nothing is learned.
std::vector<std::string> RolloutRows::recorded_lines(const Rewarded& answers,
                                                     const std::vector<double>* advantages) const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < answers.lines.size(); ++i) {
    OrderedJson line{{"step", step_ + 1}};
    line.update(OrderedJson::parse(answers.lines[i]));
    line["reward"] = answers.rewards[i];
    if (advantages) line["advantage"] = (*advantages)[i];
    lines.push_back(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }
  return lines;
}

Batches::Report RolloutRows::report_of(const Rewarded& answers, const std::vector<double>& advantages) const {
  const auto size = static_cast<std::size_t>(group_);
  const double groups = static_cast<double>(answers.rewards.size() / size);
  double deviations = 0, equal = 0, tokens = 0, truncated = 0;
  for (std::size_t first = 0; first < answers.rewards.size(); first += size) {
    const double deviation = standard_deviation(std::span(answers.rewards).subspan(first, size));
    deviations += deviation / groups;
    equal += (deviation == 0 ? 1 : 0) / groups;
  }
  for (const Completion& completion : answers.completions) {
    tokens += static_cast<double>(completion.ids.size()) / static_cast<double>(answers.completions.size());
    truncated += (completion.truncated ? 1 : 0) / static_cast<double>(answers.completions.size());
  }
  return {mean_of(answers.rewards),
          {{"rollout/reward_std", deviations},
           {"rollout/equal_rewards", equal},
           {"rollout/completion_tokens", tokens},
           {"rollout/truncated", truncated},
           {"rollout/seconds", answers.seconds},
           {"rollout/reward_seconds", answers.reward_seconds}},
          recorded_lines(answers, &advantages)};
}

bool RolloutRows::prepare(std::int64_t step, const std::function<bool()>& interrupted) {
  step_ = -1;
  std::vector<CompletionRequest> requests;
  // As the model gives it: the gradient is one of what was drawn by the probabilities themselves.
  constexpr double kTemperature = 1;
  for (std::int64_t row = 0; row < config_.batch; ++row)
    requests.push_back(
        {prompt_of(step, row), seed_of(static_cast<std::uint64_t>(config_.seed), step, row), kTemperature});
  const auto group = static_cast<std::size_t>(group_);
  const std::optional<Rewarded> answers = write(std::move(requests), group, interrupted);
  if (!answers) return false;
  step_ = step;
  const std::vector<double> advantages = group_advantages(answers->rewards, group, input_.scale_advantages);
  make_batch(*answers, advantages);
  if (reward_) report_ = report_of(*answers, advantages);
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
  return Report{mean_of(answers->rewards), {}, recorded_lines(*answers, nullptr)};
}

Batch RolloutRows::rows(std::int64_t step, std::int64_t first, std::int64_t rows) const {
  if (step != step_)
    throw Error("rollouts", "the rows of a step must be prepared first", std::to_string(step));
  Batch part;
  const auto take = [&](const auto& from) {
    const auto begin = from.begin() + first * config_.sequence;
    return std::decay_t<decltype(from)>(begin, begin + rows * config_.sequence);
  };
  part.tokens = take(batch_.tokens);
  part.targets = take(batch_.targets);
  part.segments = take(batch_.segments);
  part.positions = take(batch_.positions);
  part.advantages = take(batch_.advantages);
  part.old_logprobs = take(batch_.old_logprobs);
  return part;
}

}  // namespace meshloom::trainer
