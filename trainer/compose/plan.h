// A plan: the immutable result of composing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hal/memory_kind.h"
#include "kernels/core/variant.h"
#include "kernels/program/program.h"
#include "layers/models/trace.h"
#include "trainer/compose/exchanges.h"
#include "trainer/compose/schedule.h"
#include "trainer/compose/step.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// The byte range of a value in one of the plan's blocks.
struct Placement {
  int block = -1;
  std::int64_t offset = 0, bytes = 0;
};

// One allocation of the device, not larger than it allows.
struct Block {
  std::string label;       // "persistent 0", "transient 0", "host transient 0"
  bool persistent = true;  // transient blocks are shared by all programs of the plan
  std::int64_t bytes = 0;
  hal::MemoryKind memory = hal::MemoryKind::device;
  // In HostPlan::blocks: the block of Plan::blocks, in the host's memory, that this is; -1 = memory of its own.
  int shared = -1;
};

// One of the largest tensors in memory at the peak.
struct LargeTensor {
  std::string name;  // a value's name, or the call that defines it
  std::string kind;  // memory class
  std::int64_t bytes = 0;
};

// Why a variant does not fit, per distinct (op, variant, reason).
struct Refusal {
  std::string op, variant, reason;
};

struct PlannedProgram {
  kernels::Program program;           // every call has its choice
  std::vector<Placement> placements;  // by ValueId
  std::vector<Placement> workspaces;  // by call index; block -1 = none
  std::vector<int> marks;             // calls after which its command list has a mark, in order
  bool on_host = false;               // it runs on the host, and its places are in HostPlan::blocks
  std::vector<Exchange> exchanges;    // what its collectives move, in the order in which they end
};

// A program that every update of the parameters runs so many times.
struct UpdateStep {
  ProgramKey step;
  std::int64_t times = 1;
};

// A program by which islands exchange what a part of the layers has learnt, after updates `first`, first + every, ...
struct OuterPart {
  ProgramKey program;
  std::int64_t first = 1, every = 1;
  // The last of `updates` after which it runs; 0 = none.
  std::int64_t last(std::int64_t updates) const {
    return updates < first ? 0 : updates - (updates - first) % every;
  }
};

// Values that a rank of a pipeline sends to, or receives from, another rank.
struct Transfer {
  bool out = false;
  int rank = 0;                     // the other
  std::int32_t tag = 0;             // of the message, counted down from the largest
  std::vector<std::string> values;  // persistent values; the other rank has as many, of the same types
};

// The programs of a plan, which share their persistent values: the same name means the same storage.
struct StepPlan {
  std::map<ProgramKey, PlannedProgram> programs;
  // The programs of an update and how often each runs: train, or accumulate and then apply; over a pipeline those of slot 0,
  // which stand for all slots. Empty = trains nothing.
  std::vector<UpdateStep> update;
  std::vector<StepAction> schedule;    // one update, in order
  std::vector<StepAction> evaluation;  // of one batch, in order
  std::vector<Transfer> transfers;
  std::vector<OuterPart> outer;  // over islands

  bool has(const ProgramKey& key) const { return programs.count(key) != 0; }
  const PlannedProgram& at(const ProgramKey& key) const;  // throws Error
};

// A part of the program that runs on the host: it starts as soon as the device has passed a mark.
struct HostPart {
  int first = 0, last = 0;  // calls, the last excluded
  int mark = -1;            // of Step::accumulate; -1 = none, and as many as there are = to_host was copied
  std::vector<std::string> to_device;  // values that go to the device when it has run
};

// What of a plan is on the host beside the device.
struct HostPlan {
  std::vector<Block> blocks;                    // of the programs there
  std::map<std::string, Placement> persistent;  // values of these programs; some are on the device as well
  std::map<std::string, std::int64_t> memory;   // bytes by class
  // The sum of these blocks and of those of Plan::blocks that are in the host's memory.
  std::int64_t peak_bytes = 0;
  // Values that are on both sides: where in Plan::blocks their copy on the host lies. (Values of the device's programs in
  // the host's memory, such as gradients, have one place only.)
  std::map<std::string, Placement> copies;
  std::vector<std::string> to_host,
      to_device;  // those of them that a step copies, before and after the update
  std::vector<HostPart> parts;
  double copy_seconds = 0;  // of these copies, by the bandwidth of the device's link; 0 = unknown

  bool empty() const { return blocks.empty(); }  // no program runs there
};

// What a stage of a pipeline has.
struct StageInfo {
  std::vector<std::string> layers;  // module paths, those of all its chunks
  std::int64_t parameters = 0;      // elements, of the tensors that live there
};

// The name of a parameter's copy in 16 bits: "copy/<path>" (passes/parameter_copies.h).
std::string parameter_copy_name(const std::string& path);
bool is_parameter_copy(const std::string& name);

// The name of an island's copy of a parameter: "island/<path>".
std::string island_name(const std::string& path);

struct Plan {
  std::string device, profile;  // ids it was composed for
  std::vector<Block> blocks;
  std::map<std::string, Placement>
      persistent;  // parameters, optimizer and other state, gradients kept, inputs: by name
  // As they are stored, also of those that are on the host alone. Frozen weights may be stored in 16 bits
  // (passes/frozen_weights.h), where their ParameterInfo says f32.
  std::map<std::string, kernels::TensorType> persistent_types;
  // The persistent values of which every rank holds a part; the types of programs and of persistent_types are of this rank's.
  std::map<std::string, Division> divided;
  Topology mesh;                  // of the job, and which rank of it the plan is for
  std::vector<StageInfo> stages;  // of a pipeline, in order
  // The parameters that islands share. Each island trains a copy of its own, island_name().
  std::vector<std::string> shared;
  HostPlan host;
  StepPlan steps;
  // The parameters of which the device has a copy in 16 bits beside (passes/parameter_copies.h). Who writes such a parameter writes
  // the copy as well: adamw and Session::write() do.
  std::set<std::string> copied_parameters;
  // Memory of the host for what is on its way between ranks; all programs share it.
  std::int64_t staging_bytes = 0;
  // Bytes by class: parameters, gradients, optimizer, state, parameter_copies, inputs, activations, workspace. `memory` has the
  // classes at the moment when most memory is in use, and sums to the peak; `memory_max` has the maximum of
  // each class over all moments of all programs, so it may sum to more.
  std::map<std::string, std::int64_t> memory, memory_max;
  std::int64_t peak_bytes = 0;  // sum of the blocks in the device's memory: what it will allocate, exactly
  std::vector<LargeTensor> largest;  // of the peak, largest first
  std::vector<Refusal> refusals;
  std::vector<std::string> notes;  // what a user should know, such as that a rule changed nothing
  std::vector<layers::ParameterInfo> parameters;
  // The model's states: not trained, but part of the model like its parameters.
  std::vector<std::pair<std::string, kernels::TensorType>> states;
  layers::CacheBytes cache_bytes;  // of the programs decode
  std::set<std::int64_t>
      cached_rows;  // of one sequence, in caches that have rows for each (layers/models/trace.h)
  // The names of the entries of "metrics" and "eval/metrics".
  std::map<std::string, std::vector<std::string>> metrics;

  // The type of a persistent value in the checkpoint: the whole of a divided one. Throws Error.
  const kernels::TensorType& whole_type(const std::string& name) const;
  Layout layout(const std::string& name, int rank) const;  // the part of a rank
  std::int64_t transfer_bytes(const Transfer& transfer) const;
  // What this rank moves in one update, by axes.
  std::map<std::string, MovedBytes> update_moved_bytes() const;
  // What this rank moves in the exchanges between islands, all parts together: once in OuterPart::every updates.
  MovedBytes outer_moved_bytes() const;
  double flops(const ProgramKey& step) const;  // from the contracts; without recomputed calls
  double recompute_flops(const ProgramKey& step) const;
  // A lower bound of the program's time on the profile with the chosen variants, call by call
  // (passes/roofline.h).
  double roofline_seconds(const ProgramKey& step) const;
  // The program's likely time (cost/cost_model.h), and how much of it has this basis. It depends on what was measured on the
  // device, and on nothing that differs from process to process where the profile's numbers do not.
  double predicted_seconds(const ProgramKey& step) const;
  double predicted_seconds(const ProgramKey& step, kernels::TimeBasis basis) const;
  // The sums over the programs of one update, copies between device and host included.
  double update_flops() const;
  double update_flops_of(std::string_view op) const;  // of the calls of ops whose name begins so
  double update_roofline_seconds() const;
  double update_predicted_seconds() const;
  double update_predicted_seconds(kernels::TimeBasis basis) const;  // without copies
  std::int64_t parameter_count() const;
  std::int64_t trainable_parameter_count() const;  // those that are not frozen
};

}  // namespace meshloom::trainer
