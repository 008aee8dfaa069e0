// Holds a result to a tolerance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/contract.h"

namespace meshloom::kernels {

struct Comparison {
  bool ok = true;
  std::int64_t wrong = 0;  // elements outside the tolerance
  double worst = 0;        // largest |got - want| / allowed; infinite where nothing is allowed
  std::string text;        // when !ok: the worst element, got, want, allowed, how many are wrong
};

// Both of one type; throws Error otherwise.
Comparison compare(const ConstTensorView& want, const ConstTensorView& got, const Tolerance& tolerance);

// Holds one output of a call to what the reference gave for these inputs: by the contract's own judgement, else its tolerance.
Comparison compare_output(const Contract& contract, const CallView& call,
                          std::span<const ConstTensorView> inputs, std::span<const ConstTensorView> want,
                          std::span<const ConstTensorView> got, int output);
Comparison compare_output(const Contract& contract, const CallView& call,
                          const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& want,
                          const std::vector<HostTensor>& got, int output);

}  // namespace meshloom::kernels
