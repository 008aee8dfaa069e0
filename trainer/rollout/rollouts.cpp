#include "trainer/rollout/rollouts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "hal/error.h"
#include "kernels/core/philox.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::int32_t kIgnored = -1;
// Added to standard deviations, as in TRL.
constexpr double kStdEpsilon = 1e-4;

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

// An answer while it is written.
class RolloutRows::Answer : public RequestEvents {
 public:
  bool on_token(const TokenScore& token) override {
    ids.push_back(token.id);
    logprobs.push_back(token.logprob);
    return true;
  }
  void on_finish(FinishReason why, const Usage&, const std::string& what) override {
    reason = why;
    error = what;
    ended = true;
  }

  std::int64_t prompt = 0;          // its index in the data
  std::vector<std::int32_t> given;  // the prompt's tokens
  std::vector<std::int32_t> ids;    // with the token that ends it
  std::vector<float> logprobs;      // of ids
  FinishReason reason = FinishReason::stop;
  std::string error;
  bool ended = false;

  bool truncated() const { return reason == FinishReason::length; }
};

EngineOptions rollout_engine_options(const TrainerConfig& config) {
  const JsonlPromptsConfig& input = *config.input->prompts();
  return {.max_length = config.sequence,
          .max_sequences = std::min(input.max_sequences, config.batch),
          .max_waiting = config.batch};
}

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
                         Session& session, RewardProgram& reward)
    : config_(config),
      input_(*config.input->prompts()),
      data_(data),
      tokenizer_(tokenizer),
      reward_(reward),
      group_(input_.completions_per_prompt),
      ends_(ends_of(*config.input->tokenizer, tokenizer)),
      engine_(config, rollout_engine_options(config), session) {}

std::int64_t RolloutRows::prompt_of(std::int64_t step, std::int64_t row) const {
  const std::int64_t at = step * (config_.batch / group_) + row / group_, count = data_.examples();
  if (!input_.shuffle) return at % count;
  return static_cast<std::int64_t>(
      permute_index(static_cast<std::uint64_t>(at % count), static_cast<std::uint64_t>(count),
                    static_cast<std::uint64_t>(config_.seed), static_cast<std::uint64_t>(at / count)));
}

void RolloutRows::submit(std::int64_t step, std::size_t row) {
  const std::shared_ptr<Answer>& answer = answers_[row];
  Request request;
  request.prompt = answer->given;
  // As the model gives it: the gradient is one of what was drawn by the probabilities themselves.
  request.sampler = {
      .temperature = 1,
      .seed = seed_of(static_cast<std::uint64_t>(config_.seed), step, static_cast<std::int64_t>(row))};
  request.max_tokens = input_.completion_tokens(config_.sequence);
  request.end_tokens = ends_;
  request.events = answer;
  engine_.submit(std::move(request));
}

bool RolloutRows::write_answers(std::int64_t step, const std::function<bool()>& interrupted) {
  engine_.parameters_changed(step);
  answers_.clear();
  const auto group = static_cast<std::size_t>(group_);
  std::vector<std::size_t> leaders;  // answers whose prompts those of the others of their groups wait for
  for (std::size_t row = 0; row < static_cast<std::size_t>(config_.batch); ++row) {
    answers_.push_back(std::make_shared<Answer>());
    Answer& answer = *answers_.back();
    answer.prompt = prompt_of(step, static_cast<std::int64_t>(row));
    answer.given = data_.example(answer.prompt).tokens;
    // The whole pages of a prompt are computed once, and found by the answers that begin later.
    const bool leads = row % group == 0 && engine_.no_prefix_cache().empty() &&
                       static_cast<std::int64_t>(answer.given.size()) > engine_.page_size();
    if (leads) leaders.push_back(row);
    if (leads || leaders.empty() || row - leaders.back() >= group) submit(step, row);
  }
  while (std::any_of(answers_.begin(), answers_.end(), [](const auto& answer) { return !answer->ended; })) {
    if (interrupted()) return false;
    engine_.step();
    std::erase_if(leaders, [&](std::size_t leader) {
      const Answer& answer = *answers_[leader];
      const bool knows = answer.ended || !answer.ids.empty();
      for (std::size_t row = leader + 1; knows && row < leader + group; ++row) submit(step, row);
      return knows;
    });
  }
  if (!engine_.lost().empty()) throw hal::DeviceLost("rollouts", "the device must compute", engine_.lost());
  for (const auto& answer : answers_)
    if (answer->reason == FinishReason::error) throw Error("rollouts", "must be written", answer->error);
  return true;
}

// What the program reads of an answer.
std::string RolloutRows::line_of(std::size_t row) const {
  const Answer& answer = *answers_[row];
  std::span<const std::int32_t> text = answer.ids;
  if (!answer.truncated()) text = text.first(text.size() - 1);
  const OrderedJson json{{"example", OrderedJson::parse(data_.line(answer.prompt))},
                         {"completion", tokenizer_.decode(text)},
                         {"completion_ids", answer.ids},
                         {"finish_reason", to_string(answer.reason)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void RolloutRows::make_batch(const std::vector<double>& advantages) {
  const auto size = static_cast<std::size_t>(config_.batch * config_.sequence);
  batch_ = {};
  for (auto* ids : {&batch_.tokens, &batch_.segments, &batch_.positions}) ids->assign(size, 0);
  batch_.targets.assign(size, kIgnored);
  for (auto* values : {&batch_.advantages, &batch_.old_logprobs}) values->assign(size, 0);
  for (std::size_t row = 0; row < answers_.size(); ++row) {
    const Answer& answer = *answers_[row];
    const std::size_t given = answer.given.size(), all = given + answer.ids.size();
    const auto token = [&](std::size_t i) { return i < given ? answer.given[i] : answer.ids[i - given]; };
    const bool trains = !(input_.mask_truncated && answer.truncated());
    for (std::size_t i = 0; i + 1 < all; ++i) {
      const std::size_t at = row * static_cast<std::size_t>(config_.sequence) + i;
      batch_.tokens[at] = token(i);
      batch_.segments[at] = 1;
      batch_.positions[at] = static_cast<std::int32_t>(i);
      if (i + 1 < given || !trains) continue;
      batch_.targets[at] = token(i + 1);
      batch_.advantages[at] = static_cast<float>(advantages[row]);
      batch_.old_logprobs[at] = answer.logprobs[i + 1 - given];
    }
  }
}

void RolloutRows::make_report(std::int64_t step, const std::vector<std::string>& lines,
                              const std::vector<double>& rewards, const std::vector<double>& advantages) {
  report_ = {};
  report_.reward = mean_of(rewards);
  const auto size = static_cast<std::size_t>(group_);
  const double groups = static_cast<double>(rewards.size() / size);
  double deviations = 0, equal = 0, tokens = 0, truncated = 0;
  for (std::size_t first = 0; first < rewards.size(); first += size) {
    const double deviation = standard_deviation(std::span(rewards).subspan(first, size));
    deviations += deviation / groups;
    equal += (deviation == 0 ? 1 : 0) / groups;
  }
  for (const auto& answer : answers_) {
    tokens += static_cast<double>(answer->ids.size()) / static_cast<double>(answers_.size());
    truncated += (answer->truncated() ? 1 : 0) / static_cast<double>(answers_.size());
  }
  report_.values = {{"rollout/reward_std", deviations},
                    {"rollout/equal_rewards", equal},
                    {"rollout/completion_tokens", tokens},
                    {"rollout/truncated", truncated}};
  for (std::size_t row = 0; row < lines.size(); ++row) {
    OrderedJson line{{"step", step + 1}};
    line.update(OrderedJson::parse(lines[row]));
    line["reward"] = rewards[row];
    line["advantage"] = advantages[row];
    report_.lines.push_back(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }
}

bool RolloutRows::prepare(std::int64_t step, const std::function<bool()>& interrupted) {
  step_ = -1;
  const auto begin = Clock::now();
  if (!write_answers(step, interrupted)) return false;
  const auto written = Clock::now();
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < answers_.size(); ++row) lines.push_back(line_of(row));
  const std::vector<double> rewards = reward_.rewards(lines, interrupted);
  if (rewards.empty()) return false;
  const auto rewarded = Clock::now();
  const std::vector<double> advantages =
      group_advantages(rewards, static_cast<std::size_t>(group_), input_.scale_advantages);
  make_batch(advantages);
  make_report(step, lines, rewards, advantages);
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  report_.values.emplace_back("rollout/seconds", seconds(written - begin));
  report_.values.emplace_back("rollout/reward_seconds", seconds(rewarded - written));
  step_ = step;
  return true;
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
