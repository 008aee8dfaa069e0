#include "trainer/rollout/rollout_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "hal/error.h"
#include "trainer/inference/request.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// In the fewest digits that give the same float again.
double in_few_digits(float value) { return std::stod(fmt::format("{}", value)); }

RecordedRollout rollout_of(const OrderedJson& json) {
  RecordedRollout rollout;
  rollout.prompt = text_of(json.at("example"));
  for (const OrderedJson& id : json.at("completion_ids"))
    rollout.completion.ids.push_back(static_cast<std::int32_t>(
        std::clamp<std::int64_t>(id.get<std::int64_t>(), -1, std::numeric_limits<std::int32_t>::max())));
  rollout.completion.logprobs = json.at("logprobs").get<std::vector<float>>();
  rollout.completion.truncated =
      json.at("finish_reason").get<std::string>() == to_string(FinishReason::length);
  rollout.reward = json.at("reward").get<double>();
  return rollout;
}

}  // namespace

std::string rollout_line(const std::string& prompt, const Completion& completion,
                         const Tokenizer& tokenizer) {
  std::span<const std::int32_t> text = completion.ids;
  if (!completion.truncated) text = text.first(text.size() - 1);
  return text_of(
      {{"example", OrderedJson::parse(prompt)},
       {"completion", tokenizer.decode(text)},
       {"completion_ids", completion.ids},
       {"finish_reason", to_string(completion.truncated ? FinishReason::length : FinishReason::stop)}});
}

std::string recorded_line(std::int64_t step, const std::string& line, const RolloutScore& score) {
  OrderedJson json{{"step", step}};
  json.update(OrderedJson::parse(line));
  json["reward"] = score.reward;
  if (score.advantage) json["advantage"] = *score.advantage;
  if (score.logprobs) {
    OrderedJson& logprobs = json["logprobs"] = OrderedJson::array();
    for (const float logprob : *score.logprobs) logprobs.push_back(in_few_digits(logprob));
  }
  return text_of(json);
}

std::vector<RecordedRollout> read_rollouts(const std::string& path, std::int64_t step) {
  std::ifstream file(path);
  if (!file) throw hal::Error("'" + path + "'", "the answers of a run must be readable");
  std::vector<RecordedRollout> rollouts;
  const std::string begin = fmt::format("{{\"step\":{},", step);
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (!line.starts_with(begin)) continue;
    const auto fail = [&](const std::string& found) {
      throw hal::Error(fmt::format("'{}', line {}", path, number),
                       "must be an answer with a reward, and a log-probability for each of its tokens",
                       found);
    };
    try {
      rollouts.push_back(rollout_of(OrderedJson::parse(line)));
    } catch (const OrderedJson::exception& error) {
      fail(error.what());
    }
    const Completion& completion = rollouts.back().completion;
    if (completion.ids.empty() || completion.ids.size() != completion.logprobs.size())
      fail(fmt::format("{} tokens and {} log-probabilities", completion.ids.size(),
                       completion.logprobs.size()));
  }
  return rollouts;
}

}  // namespace meshloom::trainer
