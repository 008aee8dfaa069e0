// Checks timed results against the double-precision reference, in bounded time.
#pragma once

#include <string>
#include <vector>

#include "bench/measure/workload.h"
#include "kernels/core/contract.h"

namespace meshloom::bench {

struct CheckResult {
  enum class State { ok, wrong, unchecked };
  State state = State::unchecked;
  double error = 0;     // the largest error, as a fraction of the contract's tolerance
  std::string covered;  // "all", "rows and columns: 1 of 64 elements", "output 0 of 2"
  std::string problem;  // when wrong: the worst element
};
std::string_view to_string(CheckResult::State state);

// Calls whose reference would take long are checked on a part of their elements: of every dimension that the
// contract's partition rule allows to be cut and that all outputs have, some indices are gathered (the first,
// the last, and random ones), and the reference computes this smaller call. For a matmul these are some rows
// and columns.
class Checker {
 public:
  // Computes the expected outputs. `inputs` are those of the timed calls.
  Checker(const Workload& workload, const std::vector<kernels::HostTensor>& inputs,
          double budget_seconds = 0.3);

  CheckResult check(const std::vector<kernels::HostTensor>& outputs) const;

 private:
  struct Letter {
    char name;
    std::int64_t unit;                  // the smallest size under the letter
    std::vector<std::int64_t> indices;  // gathered, in units
  };
  kernels::HostTensor gather(const kernels::HostTensor& tensor, const std::string& dims) const;
  kernels::TensorType gathered(const kernels::TensorType& type, const std::string& dims) const;

  const Workload& workload_;
  std::vector<std::string> inputs_, outputs_;  // the letter of each dimension
  std::vector<Letter> letters_;                // the letters that are cut
  std::vector<kernels::HostTensor> want_;      // expected outputs; empty = unchecked
  std::string covered_, unchecked_;
};

}  // namespace meshloom::bench
