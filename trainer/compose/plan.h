// A plan: the immutable result of composing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/variant.h"
#include "kernels/program/program.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// The byte range of a value in one of the plan's blocks.
struct Placement {
  int block = -1;
  std::int64_t offset = 0, bytes = 0;
};

// One device allocation, not larger than the device allows.
struct Block {
  std::string label;       // "persistent 0", "transient 0"
  bool persistent = true;  // transient blocks are shared by all programs of the plan
  std::int64_t bytes = 0;
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
};

// A set of programs that share their persistent values: the same name means the same storage.
struct Plan {
  std::string device, profile;  // ids it was composed for
  std::vector<Block> blocks;
  std::map<std::string, Placement>
      persistent;  // parameters, optimizer and other state, gradients kept, inputs: by name
  std::map<std::string, kernels::TensorType> persistent_types;
  std::map<std::string, PlannedProgram> programs;  // "train", "accumulate", "apply", "eval", "logits"
  // Bytes by class: parameters, gradients, optimizer, state, inputs, activations, workspace. `memory` has the
  // classes at the moment when most memory is in use, and sums to the peak; `memory_max` has the maximum of
  // each class over all moments of all programs, so it may sum to more.
  std::map<std::string, std::int64_t> memory, memory_max;
  std::int64_t peak_bytes = 0;       // sum of the blocks: what the device will allocate, exactly
  std::vector<LargeTensor> largest;  // of the peak, largest first
  std::vector<Refusal> refusals;
  std::vector<std::string> notes;  // what a user should know, such as that a rule changed nothing
  std::vector<layers::ParameterInfo> parameters;
  // The model's states: not trained, but part of the model like its parameters.
  std::vector<std::pair<std::string, kernels::TensorType>> states;
  // The names of the entries of "metrics" and "eval/metrics".
  std::map<std::string, std::vector<std::string>> metrics;

  double flops(const std::string& program) const;  // from the contracts; without recomputed calls
  double recompute_flops(const std::string& program) const;
  // A lower bound of the program's time on the profile with the chosen variants, call by call
  // (passes/roofline.h). It is no prediction: other costs of calls are not measured.
  double roofline_seconds(const std::string& program) const;
  std::int64_t parameter_count() const;
  std::int64_t trainable_parameter_count() const;  // those that are not frozen
};

}  // namespace meshloom::trainer
