// What a driver's compiler makes of the kernels that one call would dispatch. Nothing runs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/inspection.h"
#include "kernels/core/catalog.h"
#include "kernels/core/contract.h"

namespace meshloom::trainer {

struct InspectedPipeline {
  hal::ExecutableSpec spec;
  std::array<std::uint32_t, 3> groups{};  // workgroups of the first dispatch
  int dispatches = 0;                     // of the call
  hal::Inspection found;
};

struct InspectedCall {
  std::string call;  // canonical, as kernels/program/call_text.h
  kernels::Choice choice;
  std::vector<InspectedPipeline> pipelines;  // in the order of dispatch, each once
  int host_calls = 0;                        // parts that the host would compute
};

// `device` was opened by Registry::open_to_inspect. The variant is the one that composing would choose, or the one named by
// `variant`. With `fused` 2, 4 or 8 its kernels are those of launches that run so many dispatches (horizontal_fusion.h). Throws Error when there is none for this call on the device, with the reason of each, or when a kernel does not
// compile.
InspectedCall inspect_call(const kernels::Catalog& catalog, hal::Device& device,
                           const kernels::Contract& contract, const kernels::Case& call,
                           const std::string& variant = {}, std::uint32_t fused = 1);

// The same of this way to run it, which fits.
InspectedCall inspect_choice(hal::Device& device, const kernels::Contract& contract,
                             const kernels::Case& call, const kernels::Choice& choice,
                             std::uint32_t fused = 1);

}  // namespace meshloom::trainer
