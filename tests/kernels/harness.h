// Runs the cases of contracts through variants on devices and holds the results to the reference.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::tests {

// One case as a call in a program of its own.
class CaseCall {
 public:
  CaseCall(const kernels::Catalog& catalog, const std::string& op, const kernels::Case& test);

  const kernels::Contract& contract() const { return contract_; }
  const kernels::Program& program() const { return program_; }
  kernels::CallView view() const { return types_->view(program_.calls.front()); }

 private:
  const kernels::Contract& contract_;
  kernels::Program program_;
  std::unique_ptr<kernels::CallTypes> types_;
};

// The op's outputs by its reference.
std::vector<kernels::HostTensor> reference_outputs(const kernels::Contract& contract,
                                                   const kernels::CallView& call,
                                                   const std::vector<kernels::HostTensor>& inputs);

struct Outcome {
  bool ran = false;
  std::string refusal;                // when the variant does not fit
  std::vector<std::string> failures;  // each names what was run and what is wrong
  double worst = 0;                   // largest error as a part of what is allowed
};

// Runs `call` on `device`, which should be a checked one. Every tensor stands between words that nothing may
// touch; outputs and workspace start as NaN. Checks:
//  results   within the tolerance, and the same bits when the recorded list is submitted again
//  bounds    the words around every tensor and the inputs are as before
//  in place  the same with outputs in the storage of inputs, for every pair the contract names and all
//  together refusals  come with a reason
Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const CaseCall& call,
                    std::uint64_t seed);
// The same with these parameters instead of the variant's own choice.
Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const kernels::Fit& fit,
                    const CaseCall& call, std::uint64_t seed);
// The same with these inputs, which must give `want`.
Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const kernels::Fit& fit,
                    const CaseCall& call, const std::vector<kernels::HostTensor>& inputs,
                    const std::vector<kernels::HostTensor>& want);

// The bytes of the variant's first output for these inputs; empty, and a failure, where it does not fit.
std::vector<std::byte> first_output(hal::Device& device, const kernels::Variant& variant,
                                    const CaseCall& call, const std::vector<kernels::HostTensor>& inputs);

// A variant of an op, as a backend offers it.
struct VariantTarget {
  std::string op, variant, backend;
};
void PrintTo(const VariantTarget& target, std::ostream* out);
// Those of every op and every backend that computes; "reference", which belongs to none, is among those of each.
std::vector<VariantTarget> variant_targets();

// The profile to run a device as, so that a variant shaped for `kind` is at home: "" for the device's own.
std::string profile_for(const hal::Device& device, hal::ProfileKind kind);

// Sizes at whose multiples the variant's tiles end on this device: what `fit` answers to many of the op's cases, and the
// widths that its profile names.
std::vector<std::int64_t> tile_sizes(const kernels::Catalog& catalog, const kernels::Variant& variant,
                                     const hal::DeviceInfo& device);

// The random calls that variants are tested with.
inline constexpr int kCpuRounds = 40;  // where nothing is compiled
struct RandomCall {
  kernels::Case test;
  std::uint64_t seed,
      kind;  // calls of one kind share programs where they can: compiling is what takes the time
};
RandomCall random_call(const kernels::Contract& contract, std::span<const std::int64_t> tiles, int round);

// MESHLOOM_SLOW_CASES=1 runs the cases of real models too; the references take minutes.
bool slow_cases();

// Rounds of fuzzing: MESHLOOM_FUZZ_ROUNDS, or `otherwise`.
int fuzz_rounds(int otherwise);
// Random calls that an earlier run has had: MESHLOOM_FUZZ_FROM, or 0. A long run can be done in parts.
int fuzz_from();

}  // namespace meshloom::tests
