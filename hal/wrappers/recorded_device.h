// A device that writes every command as a line of text and forwards it, for golden tests and for inspecting
// plans.
#pragma once

#include <memory>
#include <ostream>

#include "hal/device.h"

namespace meshloom::hal {

// `log` must outlive the device. Lines name buffers by label, never by address, so that equal runs give equal
// text.
std::unique_ptr<Device> recorded(std::unique_ptr<Device> inner, std::ostream& log);

}  // namespace meshloom::hal
