// The least time that a call can take on a profile with the variant that was chosen for it.
#pragma once

#include "hal/device.h"
#include "kernels/core/variant.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// FLOP/s that the unit which this choice multiplies on reaches at most, by the profile's numbers; 0 = they do
// not say. The profile's rate for a dtype of 16 or 8 bits is its matrix unit's: it counts for variants that
// use such a unit, and where the profile has no other. Every other variant widens its operands and multiplies
// in f32.
double unit_rate(const kernels::Choice& choice, const kernels::CallView& call, const hal::DeviceInfo& device);

// The larger of FLOPs by that rate and bytes by the profile's bandwidth; what is not known counts nothing.
double roofline_seconds(const kernels::Choice& choice, const kernels::CallView& call,
                        const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
