// Where every value of every program lives: exact, before anything is allocated.
//
// Persistent values (program inputs, donated outputs, named outputs) have storage of their own, the same in
// all programs. All others live from the call that defines them to their last reader and share the transient
// blocks; views share their source's storage, and an output takes over an input that dies at its call where
// the contract says the kernel works in place. Workspaces live during their call.
#pragma once

#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

constexpr std::int64_t kPlacementAlignment = 256;

// Fills plan.blocks, persistent, persistent_types, programs, memory, memory_max, peak_bytes and largest.
// Every call of the programs has its choice. Throws OutOfMemory when one tensor exceeds the device's largest
// allocation, Error when one name stands for two types.
void plan_memory(Plan& plan, std::vector<kernels::Program> programs, const kernels::Catalog& catalog,
                 const hal::DeviceInfo& device);

// Throws Error when two values of a program that are needed at one time overlap, a placement is missing or
// sticks out of its block, or two persistent values overlap. Independent of how the plan was made.
void check_memory(const Plan& plan, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
