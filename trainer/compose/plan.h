// The immutable result of composing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/variant.h"
#include "kernels/program/program.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// Where a value lives: a byte range of one of the plan's blocks.
struct Placement {
  int block = -1;
  std::int64_t offset = 0, bytes = 0;
};

// One device allocation. Every block is at most the device's largest allocation.
struct Block {
  std::string label;       // "persistent 0", "transient 0"
  bool persistent = true;  // transient blocks are shared by all programs of the plan
  std::int64_t bytes = 0;
};

// One of the largest things in memory when the peak is reached.
struct LargeTensor {
  std::string name;  // a value's name, or the call that makes it
  std::string kind;  // memory class
  std::int64_t bytes = 0;
};

// Why a variant was not chosen, per distinct (op, variant).
struct Refusal {
  std::string op, variant, reason;
};

struct PlannedProgram {
  kernels::Program program;           // every call has its choice
  std::vector<Placement> placements;  // by ValueId
  std::vector<Placement> workspaces;  // by call index; block -1 = none
};

// A set of programs over one set of persistent values: the same name means the same storage.
struct Plan {
  std::string device, profile;  // ids it was composed for
  std::vector<Block> blocks;
  std::map<std::string, Placement>
      persistent;  // parameters, optimizer and other state, gradients kept, inputs: by name
  std::map<std::string, kernels::TensorType> persistent_types;
  std::map<std::string, PlannedProgram> programs;  // "train", "accumulate", "apply", "eval", "logits"
  // Bytes by class: parameters, gradients, optimizer, state, inputs, activations, workspace. `memory` is what
  // the classes hold when most is in use, and sums to the peak; `memory_max` is the most that each class
  // holds at any moment of any program, itself, so it may sum to more.
  std::map<std::string, std::int64_t> memory, memory_max;
  std::int64_t peak_bytes = 0;       // sum of the blocks: what the device will allocate, exactly
  std::vector<LargeTensor> largest;  // of the peak, largest first
  std::vector<Refusal> refusals;
  std::vector<std::string> notes;  // what a user should be told: a rule that changed nothing, ...
  std::vector<layers::ParameterInfo> parameters;
  // States of the model: not learned, but part of it as its parameters are.
  std::vector<std::pair<std::string, kernels::TensorType>> states;
  std::map<std::string, std::vector<std::string>>
      metrics;  // names of the entries of "metrics", "eval/metrics"

  double flops(const std::string& program) const;  // from the contracts' FLOPs, recompute left out
  double recompute_flops(const std::string& program) const;
  // The least it can take on the profile with the chosen variants, call after call (floor.h). No prediction: what calls
  // cost beyond that is not measured.
  double roofline_seconds(const std::string& program) const;
  std::int64_t parameter_count() const;
  std::int64_t trainable_parameter_count() const;  // of them, those that are not frozen
};

}  // namespace meshloom::trainer
