// Names the product that a run really uses; the selector may name another.
#pragma once

#include <string>

#include "hal/device.h"

namespace meshloom::trainer {

// Whether the device is the host's processor behind a GPU's interface.
bool poses_as_gpu(const hal::DeviceInfo& device);

// "vulkan:0, AMD Radeon RX 7900 XTX"
std::string product_text(const hal::DeviceInfo& device);

// What a user who asked for `hardware` (see selector.h) should know about the device that was opened for it,
// before another profile is laid over it: it is another product than the selector names, or a CPU behind a
// GPU's interface. "" = nothing.
std::string product_note(const std::string& hardware, const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
