// A lower bound of the time that a call takes on a profile with its chosen variant, by the roofline model
// (Williams et al., 2009).
#pragma once

#include "hal/device.h"
#include "kernels/core/variant.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// The peak FLOP/s of the unit that the chosen variant multiplies on, by the profile's numbers; 0 = unknown.
// The profile's rate for a dtype of 16 or 8 bits is that of its matrix unit: it applies to variants that use
// such a unit, and when the profile has no other unit. All other variants convert their operands to f32 and
// multiply in f32.
double unit_rate(const kernels::Choice& choice, const kernels::CallView& call, const hal::DeviceInfo& device);

// Bytes per second between the device's memory and the host's, one direction, by the profile's links; 0 = unknown.
double host_link_rate(const hal::Profile& profile);

// The larger of FLOPs / that rate and bytes / the profile's bandwidth; unknown numbers count as 0 seconds.
double roofline_seconds(const kernels::Choice& choice, const kernels::CallView& call,
                        const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
