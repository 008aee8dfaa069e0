// Answers to prompts by the model of a run, with the parameters that it has at each step. Over several ranks each writes a part of
// them, and every rank gets them all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hal/transport/transport.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/dataset.h"
#include "trainer/execute/session.h"
#include "trainer/inference/engine.h"

namespace meshloom::trainer {

// The engine that writes the answers. Its programs must be part of the run's plan (decode_options()).
EngineOptions rollout_engine_options(const TrainerConfig& config);

struct CompletionRequest {
  std::int64_t prompt = 0;  // its index in the data
  std::uint64_t seed = 0;
  double temperature = 1;  // 0 = the most probable token
};

struct Completion {
  std::vector<std::int32_t> ids;  // with the token that ends it, unless it was truncated
  std::vector<float> logprobs;    // of ids
  bool truncated = false;         // it has as many tokens as it may have, and no end
};

class CompletionWriter {
 public:
  // The session holds the run's parameters. All of these must outlive it. The config's input has prompts, and so has `data`. `transport`
  // is nullptr for a run of one rank.
  CompletionWriter(const TrainerConfig& config, const Dataset& data, const Tokenizer& tokenizer,
                   Session& session, hal::Transport* transport);

  // Returns one completion for each request. Each `group` requests that follow one another have the same prompt. All ranks call it with
  // the same requests. The result is empty where `interrupted` said so, and on other ranks than 0 where a rank failed, for which rank 0
  // throws Error. Throws hal::DeviceLost.
  std::vector<Completion> write(const std::vector<CompletionRequest>& requests, std::size_t group,
                                const std::function<bool()>& interrupted);

 private:
  class Active;
  bool write_own(const std::vector<CompletionRequest>& requests, std::size_t group, std::size_t first,
                 std::vector<std::shared_ptr<Active>>& own, const std::function<bool()>& interrupted);
  void submit(const CompletionRequest& request, const std::shared_ptr<Active>& active);

  const TrainerConfig& config_;
  const Dataset& data_;
  hal::Transport* transport_;
  std::vector<std::int32_t> ends_;
  Engine engine_;
};

}  // namespace meshloom::trainer
