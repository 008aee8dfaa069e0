// How the dimensions of a call's inputs and outputs correspond.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// The letters of every input and output of a call, one per dimension, as Contract::partition says.
struct Letters {
  std::vector<std::string> inputs, outputs;
  // The letters whose shards have inputs and outputs of their own ("n.{n}"), one entry per tensor; "" = none.
  std::vector<std::string> own_inputs, own_outputs;

  bool has_own() const;
};

// Throws Error where a rule does not suit its call: it needs one letter (or '.') per dimension of every input and output, and sizes
// under one letter that are equal or multiples of each other.
Letters letters_of(const std::string& program, const kernels::Call& call, const kernels::CallTypes& types,
                   const kernels::Contract& contract);

}  // namespace meshloom::trainer
