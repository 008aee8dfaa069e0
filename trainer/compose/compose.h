// Composes a model and a learner into a plan: the driver of the passes.
//
//   trace ─ precision ─ differentiate ─ update ─ partition ─ parameter copies ─ stages ─ fuse ─ remat ─ overlap ─ select ─ plan memory
//
// Every pass is a function from program to program; after each the program is verified. Passes for ranks
// change nothing where there is one. (Fusion comes before
// rematerialization so that recomputed calls are exact copies: gradients keep their bits under any policy.)
//
// The programs of a training plan (Step) and the persistent values that they read and write (all f32 but the ids,
// codes of the optimizer, and parameters where param_dtype says so):
//   train       accumulation == 1: forward, backward, update.   tokens, targets, lr -> metrics
//   accumulate  accumulation > 1: adds one micro-batch.         tokens, targets -> grad/..., accumulate/...
//   apply       accumulation > 1: update; clears the sums.      lr -> metrics
//   evaluate    loss only.                                      tokens, targets -> eval/metrics
//   logits      where asked for.                                logits/tokens -> logits
//   decode      where asked for, for each number N of tokens.   decode/N/tokens, ... -> decode/N/logits, caches;
//               with DecodeOptions::hidden_states also decode/N/hidden_states
//   encode      with decode, for a model with an encoder.       encode/source, ... -> caches
// With the optimizer on the host there are always accumulate and apply, and apply runs there. The sums are in the host's
// memory, so that a gradient takes memory of the device only until it was copied; with one micro-batch they are overwritten
// and not added to. Plan::host has the rest: the parts of apply that run as soon as the device has passed a mark, and the
// parameters and states that are copied to the device after them.
// With a dtype of 16 bits, parameters that adamw updates on the device have copies "copy/<path>" of that dtype, which adamw writes
// beside them and which all programs multiply by; not over a pipeline or islands, and not where memory does not suffice.
// The names of persistent values: each parameter's path (which starts with the model's root, such as
// "model/"); "optimizer/<slot>/<path>", "optimizer/step" (1); inputs "tokens", "targets", with documents also
// "segments", "positions" (rows, sequence) i32, with an encoder "segments", "source", "source_segments", with
// documents also "source_positions" (rows, source) i32 ("logits/..." in that program), with a loss of preferences "answers" and
// perhaps "reference_logprobs" (rows, sequence) f32, with a loss of rollouts "advantages" and "old_logprobs" (rows, sequence)
// f32, with random layers "rng_state" (3) i32, "lr" (1); outputs "metrics", "eval/metrics", "logits" (B, S, V); sums
// "grad/<path>", "accumulate/<metric>" (1).
//
// Over a pipeline (mesh axis pipeline) there are, instead of accumulate, forward and backward (and weights) for each chunk of
// layers of this rank's stage and each slot (step.h). They keep "stash/<value>@<chunk>.<slot>" between them and exchange
// "pipe/<value>", by StepPlan::schedule; inputs are "tokens@<chunk>.<slot>". What another stage has is in Plan::divided.
//
// Over a mesh the plan is that of one rank, options.rank: rows are divided, parameters,
// gradients and optimizer states are ranges of their elements (Plan::divided), and metrics are the same on every rank.
//
// Where gradients move in fewer bits (ComposeOptions::gradient_dtype), each rank has "optimizer/gradient_error_<axes>/<path>", what
// rounding lost of the gradients that it sent: it is added to those that it sends next. A step that is skipped changes it as any.
//
// Over the axis islands every island trains by its own rows: train, accumulate and apply are those of an island alone, of its
// parameters "island/<path>". After some updates (StepPlan::outer) the programs `outer` exchange what was learnt between islands:
// the parameters by their names are those after the last exchange, which evaluation and checkpoints have (passes/distributed/islands.h).
//
// The programs decode share their caches, "PATH/keys" and the like, and each has the inputs "decode/N/NAME" that Traced::decode_inputs names.
// (Plan::cached_rows has the sizes of the inputs sequence_slots.) In a plan that trains they read the very parameters that it updates,
// as it stores them, and change nothing but their caches; they take none of the rules of `kernels`, which name variants for the
// calls of training.
//
// Gradients are of the SUM of token losses; the update divides by the token count, so accumulation is
// weighted by tokens. With f16 the loss is scaled (update.h): "optimizer/loss_scale",
// "optimizer/loss_scale_steps" (1), and the last metric is "loss_scale". A non-finite gradient norm, or no
// token at all, makes the update a copy ("applied" = 0) of parameters, optimizer and the model's states, and
// does not count as a step; only the loss scale moves. With optimizer_in_backward the copies are of the parameters alone whose own
// gradient is not finite, with their part of the optimizer, and of the model's states; such a step does not count either.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "layers/models/trace.h"
#include "trainer/compose/plan.h"
#include "trainer/learner/learner.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

class Tuning;

// Names the variant of the calls whose op and module path match these patterns (rule_pattern.h), and parameters that it
// must have, such as a tile's size. Later rules win. A variant that does not fit, or does not offer these parameters, is an
// Error with the reason.
struct KernelRule {
  std::string op = "**", path = "**", variant;
  std::map<std::string, std::int64_t> params = {};
};

// What becomes of a forward value until the backward pass reads it.
enum class RematPolicy : std::uint8_t {
  save,       // it stays in the device's memory
  recompute,  // it is computed again
  offload     // it is copied to the host's memory, and back before it is read
};
std::string_view to_string(RematPolicy policy);

// The policy of forward values whose remat tag matches the pattern. Values without a tag have the tag "". The first match
// wins; without a match values are saved.
struct RematRule {
  std::string tag = "**";
  RematPolicy policy = RematPolicy::save;
};

// How islands exchange what they have learnt (passes/distributed/islands.h).
struct OuterOptions {
  std::int64_t every = 50;  // updates
  double rate = 1, momentum = 0;
  bool nesterov = true;
  std::int64_t parts = 1;                      // of the layers, each exchanged by itself
  kernels::DType dtype = kernels::DType::f32;  // of what is moved: f32, bf16 or i8
};

// An op has no variant for DecodeOptions::row_exact on this device, or a rule names another.
struct NotRowExact : hal::Error {
  using hal::Error::Error;
};

// Programs that compute new tokens of sequences whose earlier tokens are kept in caches (layers/models/trace.h, DecodeShape).
struct DecodeOptions {
  std::vector<std::int64_t> tokens;  // a program for each of these numbers of new tokens; empty = none
  std::int64_t sequences = 1;        // at most, in one run
  std::int64_t rows = 1;             // of logits, at most; a program of fewer tokens has as many as those
  std::int64_t length = 0;           // of the longest sequence, in tokens
  std::int64_t page_size = 64;       // tokens of a page
  std::int64_t pages = 0;            // of all sequences; 0 = as many as they need at most
  // Only variants that promise Variant::row_exact, so that a token's logits have the same bits in each of the programs, whatever
  // other tokens share a run. Throws NotRowExact for an op without such a variant.
  bool row_exact = false;
  std::int64_t source = 0;     // tokens of the longest source; 0 = the model has no encoder
  bool hidden_states = false;  // what the head reads of all tokens is an output too
};

struct ComposeOptions {
  std::int64_t batch = 1;                      // rows of one update
  std::int64_t sequence = 1;                   // tokens of one row
  std::int64_t accumulation = 1;               // micro-batches of one update; divides batch
  kernels::DType dtype = kernels::DType::f32;  // of activations and of weights in matmuls
  std::vector<KernelRule> kernels;
  std::vector<RematRule> remat;
  std::vector<MeshAxis> mesh;        // axes that are missing have size 1
  std::vector<std::int64_t> shares;  // rows of a micro-batch by place over data and fsdp; empty = equal
  int rank = 0;                      // of the mesh, whose plan it is
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  // of the axis pipeline
  int chunks = 2;                                     // of layers a stage, where the schedule is interleaved
  std::string attention = "gather";  // how attention is divided over the axis seq (partition.h)
  SequenceOrder sequence_order = SequenceOrder::contiguous;
  OuterOptions outer;  // of the axis islands
  // Of gradients where they are added up between ranks: f32, bf16 or i8 (passes/distributed/compressed_gradients.h).
  kernels::DType gradient_dtype = kernels::DType::f32;
  bool evaluation = true;  // compose Step::evaluate, on batches of batch / accumulation rows
  std::int64_t logits_batch = 0, logits_sequence = 0;  // compose Step::logits; 0 = not
  // Rows hold several documents: training and evaluation have the inputs "segments" and "positions"
  // (layers/models/trace.h).
  bool documents = false;
  std::int64_t preferences = 1;  // of a row, at most, where the loss reads them
  // The number of tokens of the encoder's sources; 0 = as many as the program's sequence.
  std::int64_t source = 0, logits_source = 0;
  bool logits_row_exact = false;  // as DecodeOptions::row_exact, of Step::logits
  bool logits_padding = false;    // Step::logits has the input "logits/segments": 0 = padding
  DecodeOptions decode;
  // Update the parameters on the host (DeviceInfo::host): what the optimizer keeps takes no memory of the device.
  bool offload_optimizer = false;
  // Of the parameters that are no quantized storage: f32, or bf16 without a copy in f32 (parameter_dtype.h).
  kernels::DType param_dtype = kernels::DType::f32;
  // Keep the parameters' copies in 16 bits from step to step, where the device's memory takes them (passes/parameter_copies.h).
  // Results have the same bits with and without.
  bool parameter_copies = true;
  // Update each parameter as soon as its gradient is known; needs accumulation 1, a learner that does not clip, and no f16.
  bool optimizer_in_backward = false;
  // What was measured of kernels on this device, for rules that ask for it; nullptr = what the cache folder holds.
  std::shared_ptr<const Tuning> tuning;
  bool enforce_memory =
      true;                   // throw OutOfMemory when the plan exceeds the device's memory; false: return it
  bool verify_passes = true;  // the program after each pass; false where plans are only compared

  std::int64_t rows() const { return batch / accumulation; }  // of one micro-batch
};

// Collects the program after each pass as text.
struct PassTrace {
  struct Entry {
    std::string program, pass, text;
  };
  std::vector<Entry> entries;
};

// The first entries of "metrics"; the model's summaries follow. Plan::metrics has every name in order.
// The loss per token is loss_sum / token_count. `step` counts the updates applied so far, this one included.
enum class Metric : std::uint8_t { loss_sum, token_count, gradient_norm, applied, step };
// "eval/metrics" has the first two.

// Throws Error (bad options, rules that do not fit or match nothing), OutOfMemory; with options.decode also layers::NoCache and
// NotRowExact.
Plan compose_training(const layers::Config& model, const Learner::Config& learner,
                      const ComposeOptions& options, const kernels::Catalog& catalog,
                      const hal::DeviceInfo& device, PassTrace* trace = nullptr);

// Composes only what computes logits: options.logits_batch and logits_sequence, or options.decode, must be set. With a dtype of 16
// bits weights are stored in it where they are multiplied in it. Throws layers::NoCache for a model that cannot be decoded so.
Plan compose_inference(const layers::Config& model, const ComposeOptions& options,
                       const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                       PassTrace* trace = nullptr);

}  // namespace meshloom::trainer
