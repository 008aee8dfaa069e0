// A device that writes every command it is given as a line of text, and passes it on: for goldens and for
// reading what a plan really does.
#pragma once

#include <memory>
#include <ostream>

#include "hal/device.h"

namespace meshloom::hal {

// `log` must outlive the device. Lines name buffers by label, never by address: equal runs give equal text.
std::unique_ptr<Device> recorded(std::unique_ptr<Device> inner, std::ostream& log);

}  // namespace meshloom::hal
