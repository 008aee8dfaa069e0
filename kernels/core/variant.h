// One implementation of an op on one backend.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"
#include "kernels/program/program.h"

namespace meshloom::kernels {

struct Contract;

// The answer to "can you run this call here?". Yes means: equal to the reference within the contract's
// tolerance. No carries a reason a person can read.
struct Fit {
  bool ok = false;
  std::string reason;                          // when !ok: "head dim 40 is not a multiple of 16"
  std::map<std::string, std::int64_t> params;  // when ok: tile sizes, ...
  std::int64_t workspace_bytes = 0;            // scratch in device memory during the call

  static Fit no(std::string reason) { return {false, std::move(reason), {}, 0}; }
  static Fit yes(std::map<std::string, std::int64_t> params = {}, std::int64_t workspace_bytes = 0) {
    return {true, {}, std::move(params), workspace_bytes};
  }
};

// Everything a variant needs to write its commands. Inputs and outputs that share storage (in-place calls)
// come as bindings of the same range. `workspace.buffer` is null when workspace_bytes is 0.
struct EncodeArgs {
  CallView call;
  const Choice& choice;
  hal::Device& device;
  hal::CommandList& commands;
  std::span<const hal::Binding> inputs, outputs;
  hal::Binding workspace;
  const std::string& label;
};

// The parameter of a choice whose variant runs on f32 copies of 16-bit tensors (Variant::low_precision).
inline constexpr const char* kF32Fallback = "f32_fallback";

struct Variant {
  std::string op;
  std::string backend;  // "cpu", "opencl", "vulkan"; "" = any
  std::string name;     // unique per op and backend: "gpu_tile", "tpu_stationary", "reference"
  // The profile kinds this algorithm is shaped for; empty = any. Among variants that fit, one shaped for the device's kind
  // wins over one for any, then the first in the list of OpVariants. A variant for another kind is chosen only when a rule
  // names it.
  std::vector<hal::ProfileKind> kinds;
  std::string about;  // one sentence: what it buys over the one below
  // `target.profile` is what the device runs as, `target.limits` what the driver can do.
  Fit (*fit)(const CallView& call, const hal::DeviceInfo& target) = nullptr;
  // May record several dispatches, with barriers between them where they depend on each other. Starts and
  // ends without a barrier: the caller places those between calls.
  void (*encode)(const EncodeArgs& args) = nullptr;
  // Other parameters for a call that fits, each as right as fit's own: what tuning tries. nullptr = none.
  std::vector<Fit> (*alternatives)(const CallView& call, const hal::DeviceInfo& target) = nullptr;

  // `fit` judges 16-bit floats itself. Without it, and where `fit` says no to them, they are copied to
  // f32 in the workspace before and rounded from there after (kernels/core/f32_fallback.cpp).
  bool low_precision = false;

  // A row of the result has the same bits whatever number of rows the call has, and from every other variant of the op that
  // promises it (DecodeOptions::row_exact).
  bool row_exact = false;

  // Drivers promise more than some of them keep: taken only on devices where it has passed kernels/core/self_test.h.
  bool needs_self_test = false;
  // No device has run it yet: its self-test runs, and it is there to be named by a rule or tried by tuning, only where the
  // environment variable MESHLOOM_EXPERIMENTAL_KERNELS is 1.
  bool experimental = false;

  const Contract* contract = nullptr;            // of the op; set by Catalog::add
  const Variant* const* cast_variant = nullptr;  // of the backend, likewise: what makes the f32 copies

  // What `fit` says, but no where the variant needs a proof that the device has not given.
  Fit trusted_fit(const CallView& call, const hal::DeviceInfo& target) const;
  // The answer to any call, and the commands of one that fits.
  Fit answer(const CallView& call, const hal::DeviceInfo& target) const;
  void record(const EncodeArgs& args) const;

  bool serves(hal::ProfileKind kind) const;
  std::string key() const;  // "op name", of DeviceInfo::self_test_results
};

// The variants of an op on one backend, in order of preference.
struct OpVariants {
  std::string op;
  std::vector<Variant> variants;
};

}  // namespace meshloom::kernels
