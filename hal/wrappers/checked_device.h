// A device that checks every rule a caller must keep, and says which command broke it:
//  bounds    every binding lies within its buffer, aligned, with the access and count its kernel declares
//  order     commands between two barriers do not touch one range when one of them writes it
//  lifetime  a submitted list names no buffer that is gone, is finished, and belongs to this device
//  contents  nothing reads bytes that nothing has written
#pragma once

#include <memory>

#include "hal/device.h"

namespace meshloom::hal {

// Throws Error at the first broken rule. Costs host time only.
std::unique_ptr<Device> checked(std::unique_ptr<Device> inner);

}  // namespace meshloom::hal
