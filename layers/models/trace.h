// Traces a model into a program. This is how the trainer uses layers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/program/program.h"
#include "layers/config/config.h"
#include "layers/core/context.h"
#include "layers/core/quantized_storage.h"

namespace meshloom::kernels {
class Catalog;
}

namespace meshloom::layers {

// A parameter of the traced model. Its initial values depend on the run's seed and its path only.
struct ParameterInfo {
  std::string path;  // "decoder/stack/layer0/attention/q_proj/weight"
  kernels::TensorType type;
  std::vector<std::string> axes;  // logical sharding axes, one per dimension
  double decay = 1;               // factor on weight decay: 1 for matrices, 0 for norms and biases
  bool frozen = false;            // not trained: it has no gradient and no optimizer state
  bool adapter = false;           // added by an adapter (adapter.h); a checkpoint may be without it
  double learning_rate = 1;       // factor on the learning rate
  // Writes elements [begin, begin + count) of the initial values in a run with this seed; with a `storage`, of the
  // values of its tensor. Several threads may call it at once.
  std::function<void(std::uint64_t seed, std::int64_t begin, std::int64_t count, float* into)>
      initialize_range;

  std::shared_ptr<const QuantizedStorage> storage = nullptr;  // nullptr = stored as it is

  void initialize(std::uint64_t seed, float* into) const { initialize_range(seed, 0, type.elements(), into); }
  // How many of the model's parameters, in the sense of a parameter count, it is.
  std::int64_t count() const {
    return !storage ? type.elements() : storage->counts_elements ? storage->type.elements() : 0;
  }
};

//   program.inputs   tokens, targets, the other inputs of rows, then parameters and states in the order of the module
//                    tree; and "rng_state" (Context::rng_state) if some layer draws random numbers at run time
//   program.outputs  loss_sum and token_count, or logits; then summaries; then the new values of updated states
struct Traced {
  kernels::Program program;
  std::vector<ParameterInfo> parameters;         // in program.inputs order
  kernels::ValueId tokens = kernels::kNoValue;   // input "tokens" (B, S) i32
  kernels::ValueId targets = kernels::kNoValue;  // input "targets" (B, S) i32; negative = ignored. Loss only
  std::vector<kernels::ValueId>
      rows;  // the other inputs of rows: those of documents, of sources and of pairs
  kernels::ValueId loss_sum =
      kernels::kNoValue;  // (1): sum of the loss over valid targets, plus auxiliary losses
  kernels::ValueId token_count = kernels::kNoValue;  // (1): number of valid targets
  kernels::ValueId logits = kernels::kNoValue;       // (B, S, V), or of trace_decode() (L, V). Not of a loss
  kernels::ValueId hidden_states =
      kernels::kNoValue;  // (N, dim): what the head reads. DecodeShape::hidden_states
  std::map<std::string, kernels::ValueId> summaries;  // path -> (1)
  // The inputs of trace_decode() by name: tokens (1, N), positions (1, N), segments (1, N), slots (N), page_table (R, P), sequence_ids
  // (R, 1), query_starts (R + 1), lengths (R), rows (L), and sequence_slots/SIZE (N) for each SIZE of cached_rows; all i32; and those that layers ask for
  // (Context::step_input)
  std::map<std::string, kernels::ValueId> decode_inputs;
  std::set<std::int64_t>
      cached_rows;  // of one sequence, in caches that have rows for each (Context::sequence_slots)
  CacheBytes cache_bytes;
  // Non-parameter state, which starts as zeros: (input, output) of each update, also in program.donations.
  std::vector<std::pair<kernels::ValueId, kernels::ValueId>> state_updates;
};

// `model` is the complete config of a language model (language_model.h). Throws Error, which names the path of the
// module.
//   training   whether there are dropout and regularising terms; without, the loss is that of an evaluation
//   documents  whether rows are packed with several independent documents. There are two more inputs then: "segments" (B, S)
//              i32, the document of a token, from 1, 0 = padding; and "positions" (B, S) i32, its position in the document
//   source     the length T of sources, for a model with an encoder; 0 = `sequence`. There are more inputs then: "segments",
//              "source" (B, T) i32, the tokens of the source, "source_segments" (B, T) i32, the document that a token is the
//              source of, and with `documents` "source_positions" (B, T) i32. Without an encoder it must be 0.
//   preferences  pairs of answers that a row holds, at most, for a loss that reads them. There are the inputs "answers" and, if
//              it reads a reference, "reference_logprobs" (B, S) f32 (Preferences) more, and token_count is the number of pairs.
// A loss of rollouts has the inputs "advantages" and "old_logprobs" (B, S) f32 (Rollouts) more.
Traced trace_loss(const Config& model, const kernels::Catalog& catalog, std::int64_t batch,
                  std::int64_t sequence, bool training = true, bool documents = false,
                  std::int64_t source = 0, std::int64_t preferences = 1);
// With `padding` there is the input "segments", which says what part of a row is padding.
Traced trace_logits(const Config& model, const kernels::Catalog& catalog, std::int64_t batch,
                    std::int64_t sequence, std::int64_t source = 0, bool padding = false);

// The sizes of a step of inference (layers/core/inference_step.h).
struct DecodeShape {
  std::int64_t tokens = 1;     // new tokens of all sequences, N
  std::int64_t sequences = 1;  // at most, R
  std::int64_t rows = 1;       // tokens whose logits are computed, L
  std::int64_t length = 1;     // of the longest sequence, whose pages are ceil(length / page_size)
  std::int64_t page_size = 16, pages = 1;
  std::int64_t step_tokens = 0;  // new tokens of any program that shares the caches, at most; 0 = `tokens`
  kernels::DType dtype = kernels::DType::f32;  // of what caches keep, where they do not say it themselves
  std::int64_t source = 0;                     // tokens of the longest source; 0 = the model has no encoder
  bool hidden_states = false;                  // whether those of all tokens are an output
};

// What the model computes of new tokens beside what its caches keep of earlier ones. The caches are inputs of Role::cache, each with
// a donation of its next value. Throws Error, NoCache (layers/cache/kv_cache.h) for a model that has no such steps.
// For a model with an encoder there are the inputs source_sequence_ids (N, 1), source_starts (N + 1) and source_lengths (N) more, as
// SourceStep has them.
Traced trace_decode(const Config& model, const kernels::Catalog& catalog, const DecodeShape& shape);
// What a model with an encoder keeps of a source ahead of these steps. decode_inputs are source (1, T), source_segments (1, T), 0 =
// padding, and source_slots (T); outputs that matter are caches alone.
Traced trace_encode(const Config& model, const kernels::Catalog& catalog, const DecodeShape& shape);

// Adds every class of layers/. CMake generates this function from the add_..._classes() functions in the files.
void add_layer_classes(ClassTable& classes);

// All of these take the config of a language model.
bool reads_source(const Config& model);  // whether it has an encoder
bool reads_preferences(
    const Config& model);                   // whether its loss is one of pairs of answers (preference_loss.h)
bool reads_reference(const Config& model);  // whether that loss reads a reference model's log-probabilities
bool reads_rollouts(
    const Config& model);  // whether its loss is one of answers that it writes (policy_loss.h)
std::int64_t max_sequence(const Config& model);  // the longest sequence that it accepts; 0 = no limit
std::int64_t max_source(const Config& model);    // the longest source that it accepts; 0 = no limit
std::int64_t vocabulary(const Config& model);    // the size of the vocabulary

}  // namespace meshloom::layers
