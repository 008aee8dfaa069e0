// Says how far the compiling of kernels is, which takes minutes when a driver sees them for the first time.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "hal/device.h"

namespace meshloom::trainer {

// Calls `say` with "compiling kernels 12/87" after `first` seconds and then every `next` seconds.
hal::LoadProgress compile_progress(std::function<void(const std::string&)> say, double first = 2,
                                   double next = 5);

}  // namespace meshloom::trainer
