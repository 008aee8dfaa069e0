// All ways to run a call on a device: what tuning times, and what inspecting ranks.
#pragma once

#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"

namespace meshloom::trainer {

struct Candidate {
  const kernels::Variant* variant = nullptr;
  kernels::Fit fit;
  std::string name;     // the variant, with the parameters that differ from its own choice
  bool is_own = false;  // has the parameters that the variant itself chooses
};

// Every variant that fits, without the reference, in the order of preference, each with its own parameters and behind them all
// alternatives.
std::vector<Candidate> candidates(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                                  const kernels::CallView& call);

}  // namespace meshloom::trainer
