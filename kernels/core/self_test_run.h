// Runs one call on a device and holds it to the reference.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/contract.h"
#include "kernels/core/variant.h"

namespace meshloom::kernels {

struct CallCheck {
  bool ok = true;
  double worst = 0;     // largest error as a part of what the contract allows
  std::string problem;  // when !ok: the worst element of the last output that is wrong
};

// `choice` names the variant and its parameters. Inputs are those of a case with this seed; outputs and
// workspace start as NaN. Throws Error where the device does.
CallCheck check_call(hal::Device& device, const Contract& contract, const CallView& call,
                     const Choice& choice, std::uint64_t seed);

}  // namespace meshloom::kernels
