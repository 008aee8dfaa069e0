// Writes many texts at once: each step computes the next token of every text that has begun and parts of the prompts of others
// (Yu et al., Orca, 2022), beside caches in pages (Kwon et al., vLLM, 2023). Pages of texts that begin alike are shared.
//
// What a cache keeps for each sequence (WindowCache, ContiguousCache) is found again by nobody: a model with such a cache has no prefix
// cache, and where no cache has pages, texts wait for nothing but their turn.
//
// A model with an encoder reads the source of a text when the text begins to run, and again where it was preempted. Texts of different
// sources share nothing: such a model has no prefix cache.
//
// The tokens of a text depend neither on when it came nor on what else runs. Where the engine is batch-invariant, not a bit of a
// log-probability does; elsewhere programs of other sizes may add in another order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/inference/engine_options.h"
#include "trainer/inference/kv_connector.h"
#include "trainer/inference/lora_adapter.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/page_pool.h"
#include "trainer/inference/request.h"
#include "trainer/inference/scheduler.h"
#include "trainer/inference/speculator.h"

namespace meshloom::trainer {

class Engine : public EngineClient {
 public:
  // Composes, allocates and reads the parameters from `weights`. The device and the catalog must outlive the engine. Throws
  // layers::NoCache for a model that cannot keep what it computed (layers/cache/kv_cache.h), NotRowExact, OutOfMemory, Error.
  // `speculator` guesses tokens where the options want some; none = by PromptLookup.
  Engine(const TrainerConfig& config, const EngineOptions& options, hal::Device& device,
         const kernels::Catalog& catalog, const StoredTensors& weights,
         std::unique_ptr<Speculator> speculator = nullptr);
  // `write_parameters` writes them.
  Engine(const TrainerConfig& config, const EngineOptions& options, hal::Device& device,
         const kernels::Catalog& catalog, const std::function<void(Session&)>& write_parameters,
         std::unique_ptr<Speculator> speculator = nullptr);
  // Runs in a session whose plan has the programs of runner_options() (decode_options()), such as one that trains, on the parameters that it
  // holds. The session must outlive the engine, which tells the speculator nothing of parameters that change.
  Engine(const TrainerConfig& config, const EngineOptions& options, Session& session,
         std::unique_ptr<Speculator> speculator = nullptr);
  // Ends what has not ended as cancelled. Nobody may step or call any more.
  ~Engine() override;

  // One thread at a time calls these two, and is the one that events come from.
  // Ends requests that are to end, and runs one program; false = there was nothing to compute.
  bool step();
  // Steps until told to stop, which is after the step at hand; sleeps while there is nothing to do. Requests that have not ended
  // then stay: it may be called again.
  void run(const std::stop_token& stop);

  // Goes on with other parameters of the same model as soon as no request runs. Those that run end with the parameters that they began
  // with, those that wait begin with the new ones: a text is of one set of parameters, and so are the pages that it finds. Where
  // reading fails nothing can be computed any more. From any thread; a later call takes the place of one that still waits.
  // `checkpoint_step` is what the counters say of them. Throws Error for parameters of other names, types or shapes, and goes on with
  // those that it has; and in a session of somebody else, whose parameters they are.
  void set_weights(std::shared_ptr<const StoredTensors> weights, std::int64_t checkpoint_step = 0);

  // Says that the parameters of the session have changed, as by a step of training: what was computed with the old ones is not found
  // again. No request may have begun. Of the thread that steps; it throws Error.
  void parameters_changed(std::int64_t checkpoint_step = 0);

  // Loads an adapter into a slot of the recipe (layers/adapters/lora_slots.h) between two steps. Requests that are submitted from now on
  // can name it, and wait for it. `loaded` hears once that it is there, or why not, from the engine's thread. With `replace` it
  // takes the place of one of that name: requests from before go on with the old one, which keeps its slot until they have ended, and
  // where no other slot is free the new one waits for that. Throws Error for an adapter that does not fit, an invalid name or one that is
  // taken, and where all slots have names. From any thread.
  void load_adapter(const std::string& name, std::shared_ptr<const LoraAdapter> adapter, bool replace = false,
                    std::function<void(const std::string& error)> loaded = {});
  // New requests cannot name it any more; those from before go on with it, and then its slot is free. Throws UnknownAdapter.
  void unload_adapter(const std::string& name);
  std::vector<std::string> adapters() const override;
  const LoraSlotsOfPlan& lora_slots() const { return runner_.lora_slots(); }

  // Asks `connector` for the whole pages of prompts that are not known here, and computes what does not come. A request waits for its
  // pages without holding up others. Before any step. Throws Error where what was computed is not found again, as then nothing could be
  // done with a page.
  void set_kv_connector(std::shared_ptr<KVConnector> connector);
  std::int64_t page_size() const { return options_.page_size; }
  const std::vector<PageOfCache>& page_layout() const { return runner_.page_layout(); }
  std::int64_t page_bytes() const { return runner_.page_bytes(); }
  const Plan& plan() const { return runner_.plan(); }

  // Why nothing can be computed any more; "" = it can. Of the thread that steps.
  const std::string& lost() const { return lost_; }

  RequestId submit(Request request) override;
  void cancel(RequestId id) override;
  EngineCounters counters() const override;
  // No longer than what the pool holds.
  std::int64_t max_length() const override { return max_length_; }
  std::int64_t max_source() const override { return options_.max_source; }
  std::int64_t vocabulary() const override { return runner_.vocabulary(); }
  std::int64_t embedding_size() const override { return runner_.hidden_size(); }
  // Why what was computed is not found again by other requests where the options ask for it; "" = it is.
  const std::string& no_prefix_cache() const { return no_prefix_cache_; }
  // Why the engine is not batch-invariant; "" = it is.
  const std::string& batch_dependence() const { return runner_.batch_dependence(); }

 private:
  // One version of an adapter, which lives as long as its name or a request needs it. Its slot is of the thread that steps.
  struct Adapter {
    std::shared_ptr<const LoraAdapter> weights;  // until they are in the slot
    std::function<void(const std::string& error)> loaded;
    std::int32_t slot = -1;  // -1 = not loaded yet
    PagePool::Root root = 0;
  };
  struct NewWeights {
    std::shared_ptr<const StoredTensors> weights;  // nullptr = none
    std::int64_t step = 0;
  };
  // A request that has not ended.
  struct Active : Sequence {
    Active(RequestId id, Request request, Pooling pooling);
    Request request;
    std::shared_ptr<const Adapter> with;  // nullptr = the model alone
    Usage usage;
    std::vector<TokenScore> scores;  // of the prompt
    std::vector<double> embedding;   // the sum of the hidden states that it is made of
    std::int64_t pooled = 0;         // tokens that it was made of so far, or passed over
    DraftLength draft_length;
    std::int64_t known = 0;      // pages that are known to the pool
    std::int64_t next_page = 0;  // that Request::pages_from wants
    bool began = false;
    bool fetching = false;  // pages of it may still come from the connector
    std::int64_t fetched_to = 0,
                 fetch_end = 0;  // the pages before are known or were, and those that were asked for end
    RequestId id() const { return arrival; }
  };

  Engine(const TrainerConfig& config, const EngineOptions& options, ModelRunner runner, bool owns_parameters,
         std::unique_ptr<Speculator> speculator);
  bool any_began() const;
  void check(const Request& request) const;
  void receive();
  bool compute();
  void fetch(Active& active);
  bool take_pages();
  void keep_received(Active& active, const KVPage& page);
  void send_known_pages();
  bool send_pages(Active& active);
  bool take_weights();
  bool take_adapters();
  void propose();
  void lose(const std::string& what);
  bool is_awaited() const;
  void advance(Active& active, const Chunk& chunk, std::span<const float> logits,
               std::span<const float> hidden_states);
  void pool(Active& active, std::int64_t first, std::span<const float> hidden_states);
  void embed(Active& active);
  bool draw(Active& active, std::span<const float> logits);
  void keep_pages(Active& active);
  void finish(Active& active, FinishReason reason, const std::string& error = {});
  void publish();

  const EngineOptions options_;
  const bool owns_parameters_;
  std::int64_t max_length_;
  ModelRunner runner_;
  std::string no_prefix_cache_;
  std::unique_ptr<Speculator> speculator_;
  std::shared_ptr<KVConnector> connector_;  // nullptr = none

  // Of the thread that steps.
  PagePool pool_;
  std::vector<std::unique_ptr<Active>> active_;  // waiting and running
  EngineCounters counts_;
  NewWeights weights_;                               // to be read when nothing runs
  std::vector<std::weak_ptr<const Adapter>> slots_;  // expired = free
  std::vector<std::shared_ptr<Adapter>> loading_;    // that wait for a slot

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::unique_ptr<Active>> submitted_;  // since the last step
  std::vector<RequestId> cancelled_;
  NewWeights new_weights_;
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
  std::vector<std::shared_ptr<Adapter>> new_adapters_;
  EngineCounters published_;
  std::int64_t unfinished_ = 0;  // requests
  bool pages_arrived_ = false;
  RequestId last_ = 0;
  std::string lost_;  // why nothing can be computed any more
};

}  // namespace meshloom::trainer
