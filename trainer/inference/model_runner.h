// A model on a device that computes new tokens of several sequences at once, beside the pages of their caches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/execute/session.h"
#include "trainer/inference/lora_adapter.h"
#include "trainer/inference/scheduler.h"

namespace meshloom::trainer {

struct ModelRunnerOptions {
  std::int64_t length = 1;              // of the longest sequence, in tokens
  std::int64_t sequences = 1;           // at most, in one run
  std::int64_t rows = 0;                // of logits, at most, in one run; 0 = one of each sequence
  std::vector<std::int64_t> tokens{1};  // of the programs: a run takes the one with the fewest that has room
  std::int64_t page_size = 1;           // tokens of a page
  std::int64_t pages = 1;               // of all sequences
  // Whether logits have the same bits whatever shares a run; unset = where that costs little and the kernels can.
  std::optional<bool> batch_invariant = {};
  std::int64_t source = 0;     // of the longest source, in tokens; 0 = the model has no encoder
  bool hidden_states = false;  // whether they can be read
};

// Whether programs are batch-invariant unless it is asked for otherwise: where that costs little.
bool is_batch_invariant_by_default(const hal::DeviceInfo& device);

// The programs of a ModelRunner as a plan has them, batch-invariant as the options ask or by default.
DecodeOptions decode_options(const ModelRunnerOptions& options, const hal::DeviceInfo& device);
// What a plan for inference alone takes from a recipe, on one rank.
ComposeOptions inference_options(const TrainerConfig& config);
// Throws Error where these are not parameters of such a plan, by names, types and shapes.
void check_parameters(const StoredTensors& weights, const Plan& plan);
// Reads the parameters of the session's plan.
void load_parameters(const StoredTensors& weights, Session& session);

// The programs of a ModelRunner.
struct ServingPlan {
  ComposeOptions options;
  Plan plan;
  // Why logits can depend on what shares a run, in rounding; "" = they do not.
  std::string batch_dependence;
};
// Throws layers::NoCache for a model that cannot be computed so, NotRowExact where it must be batch-invariant and cannot,
// OutOfMemory if `enforce_memory`, Error.
ServingPlan compose_serving(const TrainerConfig& config, const ModelRunnerOptions& options,
                            const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                            bool enforce_memory = true);

// What a cache keeps of one page.
struct PageOfCache {
  std::string name;
  kernels::TensorType type;  // without the axis of the pages
};

class ModelRunner {
 public:
  // Composes the programs and reads the parameters from `weights`. Throws what compose_serving() throws.
  ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, hal::Device& device,
              const kernels::Catalog& catalog, const StoredTensors& weights);
  // `write_parameters` writes them.
  ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, hal::Device& device,
              const kernels::Catalog& catalog, const std::function<void(Session&)>& write_parameters);
  // Runs in a session whose plan has these programs (decode_options()), on the parameters that it holds. It must outlive the runner.
  ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, Session& session);

  std::int64_t vocabulary() const { return vocabulary_; }
  const std::string& batch_dependence() const { return batch_dependence_; }
  std::int64_t max_tokens() const { return programs_.rbegin()->first; }
  // Tokens of one run whose logits can be wanted.
  std::int64_t rows() const { return options_.rows; }

  // Reads other parameters of the same names and shapes. What it throws may leave some of them read.
  void load(const StoredTensors& weights) { load_parameters(weights, *session_); }

  // Reads the source of a sequence, for a model with an encoder, ahead of the runs that compute the sequence's tokens. Throws Error for one that
  // is too long.
  void encode(Sequence& sequence, std::span<const std::int32_t> source);

  // Computes chunks of different sequences, whose pages must have room for them, and waits for them. Returns the logits of the wanted
  // tokens, (rows, vocabulary), in the order of the chunks and of their tokens, until the next run. What it throws leaves the pages of
  // other sequences as they were, unless it is DeviceLost.
  std::span<const float> run(std::span<const Chunk> chunks);
  // The hidden states of the last run's tokens, (tokens, hidden_size()), in the order of the chunks: what the model's head reads, behind
  // the last norm, in f32. Until the next run. Needs ModelRunnerOptions::hidden_states.
  std::span<const float> hidden_states();
  std::int64_t hidden_size() const { return hidden_size_; }  // 0 = there are none to be read
  // Computes them likewise and returns the seconds of each call of the program that runs, by the device's clock. Throws Error where
  // the device has no timestamps.
  std::vector<double> time_calls(std::span<const Chunk> chunks);

  // Room for adapters; without slots where the model has none.
  const LoraSlotsOfPlan& lora_slots() const { return lora_slots_; }
  // Fills a slot, whose tokens of a later run are those of the adapter. Throws Error where it does not fit.
  void load_adapter(std::int32_t slot, const LoraAdapter& adapter) {
    write_adapter(*session_, lora_slots_, slot, adapter);
  }

  const Plan& plan() const { return session_->plan(); }
  // Whether some cache keeps pages; without, the pages of sequences hold nothing.
  bool uses_pages() const { return plan().cache_bytes.page > 0; }
  // Whether some cache keeps rows for each sequence by Sequence::sequence_id: nobody else finds them again.
  bool uses_sequence_ids() const { return plan().cache_bytes.sequence > 0; }
  // The caches of which a page can be copied, by their names: all of them, or none where some cache keeps rows for each sequence.
  const std::vector<PageOfCache>& page_layout() const { return page_layout_; }
  std::int64_t page_bytes() const { return page_bytes_; }
  // Copy what the caches keep of a page, one cache behind another as page_layout() has them, in page_bytes() bytes. Throw Error.
  void read_page(Page page, std::span<std::byte> bytes);
  void write_page(Page page, std::span<const std::byte> bytes);
  // Of `same` tokens of the sequence that were computed and stay, so many need not be computed again. A ring (WindowCache) has kept no
  // more than the last ones.
  std::int64_t kept(const Sequence& sequence, std::int64_t same) const {
    return uses_sequence_ids() && sequence.written - same > max_tokens() ? 0 : same;
  }
  // The program that computes so many tokens.
  ProgramKey program_of(std::int64_t tokens) const;

 private:
  using Ids = std::vector<std::int32_t>;
  enum Input : std::size_t {
    kTokens,
    kPositions,
    kSegments,
    kSlots,
    kPageTable,
    kQueryStarts,
    kLengths,
    kSequenceIds,
    kRows,
    kAdapters,
    kRowAdapters,
    kSourceIds,
    kSourceStarts,
    kSourceLengths,
    kInputs  // then one for each of cached_rows_
  };
  struct Program {
    std::int64_t rows = 0;
    std::string logits, hidden_states;
    std::vector<std::string> names;  // "" = the program has no such input
    std::vector<Ids> written;        // what the inputs hold
  };
  // A run with its inputs written.
  struct Prepared {
    ProgramKey key;
    const Program* program;
    std::size_t wanted;   // rows of logits
    std::int64_t tokens;  // without padding
  };
  Prepared prepare(std::span<const Chunk> chunks);
  void write(Program& program, const std::vector<Ids>& inputs);
  void enter(Session& session, const DecodeOptions& decode);

  ModelRunnerOptions options_;
  std::int64_t vocabulary_, table_width_;
  std::vector<std::int64_t> cached_rows_;  // Plan::cached_rows
  std::string batch_dependence_;
  LoraSlotsOfPlan lora_slots_;
  template <typename Bytes, typename F>
  void copy_page(Page page, Bytes bytes, F copy) const;

  std::vector<PageOfCache> page_layout_;
  std::int64_t page_bytes_ = 0;
  std::map<std::int64_t, Program> programs_;  // by their number of new tokens
  std::vector<float> logits_, hidden_states_;
  std::int64_t hidden_size_ = 0;
  const Program* last_program_ = nullptr;  // that ran
  std::int64_t last_tokens_ = 0;           // of it
  std::unique_ptr<Session> own_;
  Session* session_ = nullptr;
};

}  // namespace meshloom::trainer
