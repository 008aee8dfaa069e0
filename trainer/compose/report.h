// Describes a plan's memory in words.
#pragma once

#include <cstdint>
#include <string>

#include "hal/device.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// "1.50 GiB", "12.0 MiB", "640 B"
std::string readable_bytes(std::int64_t bytes);

// The memory that the device may use: the smaller of its driver's and its profile's number; 0 = unknown.
std::int64_t memory_limit(const hal::DeviceInfo& device);
// " (free now of 24.00 GiB, ...)" when the driver says how much of its memory is free, " (limited by the run)" when the run
// takes only a part of it, else "".
std::string memory_note(const hal::DeviceInfo& device);

// Throws OutOfMemory when the plan's peak exceeds the device's memory; says by how much, which classes and
// tensors it consists of, and which options would help.
void require_memory(const Plan& plan, const ComposeOptions& options, const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
