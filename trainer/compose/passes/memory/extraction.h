// Takes a part of the calls of a program as a program of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/program/program.h"

namespace meshloom::trainer {

// By call: whether it depends on nothing, on inputs of the host alone, or on parameters alone, so that it can be made again
// wherever it is read.
std::vector<char> remakable(const kernels::Program& program);

// Takes the calls that `keep` marks, and of what they read those that `remake` marks. Outputs and donations of the result are
// left to the caller.
class Extraction {
 public:
  Extraction(const kernels::Program& source, std::vector<char> keep, const std::vector<char>& remake);

  // Declares a value as an input of this name, before run().
  void input(kernels::ValueId id, const std::string& name);
  // Copies the calls; those that are made again have the phase `again` where it is given. Throws Error for a value that one
  // reads and that is neither an input nor defined by one.
  void run(std::optional<kernels::Phase> again = {});

  // The values that the calls read and do not define, by their number in the source.
  std::vector<kernels::ValueId> missing() const;
  bool known(kernels::ValueId id) const;
  kernels::ValueId operator()(kernels::ValueId id) const;  // in the result
  kernels::Program& program() { return result_; }

 private:
  kernels::ValueId copy(kernels::ValueId id);

  const kernels::Program& source_;
  std::vector<char> keep_, taken_;    // by call
  std::vector<kernels::ValueId> to_;  // by value
  kernels::Program result_;
};

}  // namespace meshloom::trainer
