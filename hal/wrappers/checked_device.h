// Wraps a device and checks every rule that callers must follow; an Error names the command that breaks the
// first one:
//  bounds    every binding lies within its buffer, is aligned, and has the access and count that its kernel declares
//  order     commands between two barriers do not touch the same range when one of them writes it
//  lifetime  a submitted list is finished, belongs to this device, and uses no buffer that was destroyed
//  contents  no bytes are read that were never written
#pragma once

#include <memory>

#include "hal/device.h"

namespace meshloom::hal {

// Checking costs host time only.
std::unique_ptr<Device> checked(std::unique_ptr<Device> inner);

}  // namespace meshloom::hal
