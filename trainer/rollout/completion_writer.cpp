#include "trainer/rollout/completion_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "hal/error.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/execute/exchange.h"
#include "trainer/execute/gather_texts.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

// Where a rank's part begins: groups are kept whole where there are enough of them, as their prompts are computed once then.
std::size_t part_begin(std::size_t requests, std::size_t group, int rank, int ranks) {
  const std::size_t unit = requests / group >= static_cast<std::size_t>(ranks) ? group : 1;
  return requests / unit * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks) * unit;
}

// What a rank tells the others of its part, as MessagePack.
std::string packed(const Json& json) {
  std::string text;
  Json::to_msgpack(json, text);
  return text;
}

Json to_json(const Completion& completion) {
  return {{"ids", completion.ids}, {"logprobs", completion.logprobs}, {"truncated", completion.truncated}};
}

Completion completion_of(const Json& json) {
  return {json.at("ids").get<std::vector<std::int32_t>>(), json.at("logprobs").get<std::vector<float>>(),
          json.at("truncated").get<bool>()};
}

}  // namespace

// A completion while it is written.
class CompletionWriter::Active : public RequestEvents {
 public:
  bool on_token(const TokenScore& token) override {
    completion.ids.push_back(token.id);
    completion.logprobs.push_back(token.logprob);
    return true;
  }
  void on_finish(FinishReason why, const Usage&, const std::string& what) override {
    completion.truncated = why == FinishReason::length;
    if (why == FinishReason::error) error = what;
    ended = true;
  }

  std::vector<std::int32_t> prompt;
  Completion completion;
  std::string error;  // "" = there is none
  bool ended = false;
};

EngineOptions rollout_engine_options(const TrainerConfig& config) {
  const JsonlPromptsConfig& input = *config.input->prompts();
  return {.max_length = config.sequence,
          .max_sequences = std::min(input.max_sequences, config.batch * input.steps_per_generation),
          .max_waiting = config.batch * std::max(config.eval_batches, input.steps_per_generation)};
}

CompletionWriter::CompletionWriter(const TrainerConfig& config, const Dataset& data,
                                   const Tokenizer& tokenizer, Session& session, hal::Transport* transport)
    : config_(config),
      data_(data),
      transport_(transport),
      ends_(ends_of(*config.input->tokenizer, tokenizer)),
      engine_(config, rollout_engine_options(config), session) {}

void CompletionWriter::submit(const CompletionRequest& request, const std::shared_ptr<Active>& active) {
  Request text;
  text.prompt = active->prompt;
  text.sampler = {.temperature = request.temperature, .seed = request.seed};
  text.max_tokens = config_.input->prompts()->completion_tokens(config_.sequence);
  text.end_tokens = ends_;
  text.events = active;
  engine_.submit(std::move(text));
}

// Those of requests[first ...]. False = interrupted.
bool CompletionWriter::write_own(const std::vector<CompletionRequest>& requests, std::size_t group,
                                 std::size_t first, std::vector<std::shared_ptr<Active>>& own,
                                 const std::function<bool()>& interrupted) {
  engine_.parameters_changed();
  const auto end_of_group = [&](std::size_t i) {
    return std::min(own.size(), i + group - (first + i) % group);
  };
  std::vector<std::size_t> leaders;  // whose prompts the others of their groups wait for
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i] = std::make_shared<Active>();
    const std::int64_t prompt = requests[first + i].prompt;
    // Reading a prompt may mean to carry out a chat template.
    own[i]->prompt =
        i > 0 && prompt == requests[first + i - 1].prompt ? own[i - 1]->prompt : data_.example(prompt).tokens;
    // The whole pages of a prompt are computed once, and found by the answers that begin later.
    const bool leads = (i == 0 || (first + i) % group == 0) && engine_.no_prefix_cache().empty() &&
                       static_cast<std::int64_t>(own[i]->prompt.size()) > engine_.page_size();
    if (leads) leaders.push_back(i);
    if (leads || leaders.empty() || i >= end_of_group(leaders.back())) submit(requests[first + i], own[i]);
  }
  while (std::any_of(own.begin(), own.end(), [](const auto& active) { return !active->ended; })) {
    if (interrupted()) return false;
    engine_.step();
    std::erase_if(leaders, [&](std::size_t leader) {
      const bool knows = own[leader]->ended || !own[leader]->completion.ids.empty();
      for (std::size_t i = leader + 1; knows && i < end_of_group(leader); ++i)
        submit(requests[first + i], own[i]);
      return knows;
    });
  }
  if (!engine_.lost().empty()) throw hal::DeviceLost("rollouts", "the device must compute", engine_.lost());
  return true;
}

std::vector<Completion> CompletionWriter::write(const std::vector<CompletionRequest>& requests,
                                                std::size_t group, const std::function<bool()>& interrupted) {
  const int rank = transport_ ? transport_->rank() : 0, ranks = transport_ ? transport_->size() : 1;
  const std::size_t first = part_begin(requests.size(), group, rank, ranks),
                    end = part_begin(requests.size(), group, rank + 1, ranks);
  std::vector<std::shared_ptr<Active>> own(end - first);
  if (!write_own(requests, group, first, own, interrupted)) return {};
  std::vector<Completion> all;
  std::string error;
  for (const auto& active : own) {
    if (error.empty()) error = active->error;
    all.push_back(std::move(active->completion));
  }
  if (transport_) {
    Json part{{"error", error}, {"completions", Json::array()}};
    for (const Completion& completion : all) part["completions"].push_back(to_json(completion));
    all.clear();
    // Answers may be of any length, so that a rank has to wait for others as long as they write.
    for (const std::string& text : gather_texts(*transport_, packed(part), kForever)) {
      const Json of_rank = Json::from_msgpack(text);
      if (error.empty()) error = of_rank.at("error").get<std::string>();
      for (const Json& completion : of_rank.at("completions")) all.push_back(completion_of(completion));
    }
  }
  if (error.empty()) return all;
  if (rank > 0) return {};
  throw Error("rollouts", "must be written", error);
}

}  // namespace meshloom::trainer
